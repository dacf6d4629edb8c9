"""ONNX export: `to_onnx` converts a fitted model to an ONNX model, and `write_onnx` writes it to a file."""

from cavity.export.model import to_onnx, write_onnx

__all__ = ["to_onnx", "write_onnx"]
