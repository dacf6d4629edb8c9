"""Gaussian process classification for many classes and any number of rows, with probabilities you can trust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cavity.version import __version__

if TYPE_CHECKING:
    from cavity.classifier import GPClassifier, load
    from cavity.runtime.warnings import CavityWarning

__all__ = ["CavityWarning", "GPClassifier", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import the classifier on first use, so that `import cavity` and `cavity --help` stay light."""
    if name in ("GPClassifier", "load"):
        from cavity import classifier

        return getattr(classifier, name)
    if name == "CavityWarning":
        from cavity.runtime.warnings import CavityWarning

        return CavityWarning
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
