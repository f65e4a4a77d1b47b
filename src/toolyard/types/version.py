"""The version of Toolyard. Here, so that packages need not import the library's interface for it."""

__all__ = ["__version__"]

__version__ = "0.1.0"
