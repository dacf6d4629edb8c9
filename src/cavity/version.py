"""The one place of the version; the package and the build read it here."""

__version__ = "0.1.0"
