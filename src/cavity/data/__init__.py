"""Sources of training rows."""

from cavity.data.arrays import ArrayData

__all__ = ["ArrayData"]
