"""A summary made of the messages themselves, without a model."""
