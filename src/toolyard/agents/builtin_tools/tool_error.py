"""What a native tool says when it cannot do what it was asked."""

from __future__ import annotations

__all__ = ["NativeToolError"]


class NativeToolError(Exception):
    """The words are for the model, which gets them as an error result and may try something else."""
