"""What is done to text wherever it comes from: counted, cut, redacted, made inert, made encodable. Pure functions."""
