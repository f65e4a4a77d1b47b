"""The version of Toolyard. Here, so that packages need not import the library's interface for it."""

__all__ = ["USER_AGENT", "__version__"]

__version__ = "0.1.0"
USER_AGENT = f"toolyard/{__version__}"
"""Value of the header with which outgoing HTTP requests name this program."""
