"""Models for other programs: `to_onnx` makes an ONNX model of the probabilities, `write_onnx` a file of it."""

from cavity.export.model import to_onnx, write_onnx

__all__ = ["to_onnx", "write_onnx"]
