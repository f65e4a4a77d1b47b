"""Error of the built-in tools."""

from __future__ import annotations

__all__ = ["NativeToolError"]


class NativeToolError(Exception):
    """Raised when a tool cannot do its work. The message is sent to the model as an error result."""
