"""Files: atomic writes, tensor files, JSON values and the model file."""
