"""The version of this package, for all rooms."""

__version__ = "0.2.0.dev0"
