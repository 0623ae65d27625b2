"""Measurements: `python -m benchmarks NAME`. Not part of the package."""
