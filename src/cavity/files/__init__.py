"""Files: atomic writes, tensors, JSON values and the model file."""
