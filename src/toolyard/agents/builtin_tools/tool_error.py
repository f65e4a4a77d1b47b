"""Error of the built-in tools."""

__all__ = ["NativeToolError"]


class NativeToolError(Exception):
    """Raised when a tool cannot do its work. The message is sent to the model as an error result."""
