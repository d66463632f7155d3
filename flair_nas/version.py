"""The version of this package, for all rooms."""

__version__ = "0.1.0"
