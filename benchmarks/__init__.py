"""Benchmarks: one module each. Run one with `python -m benchmarks NAME`."""
