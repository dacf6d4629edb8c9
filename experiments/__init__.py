"""The experiments of the paper, and our own: one folder each. Run one with `python -m experiments NAME`."""
