"""Shape results for a model: limits, media, fences, and no secrets in errors."""

from toolyard.content.failure import failed
from toolyard.content.fencing import fence
from toolyard.content.handles import Handles, Kept
from toolyard.content.limits import Limits
from toolyard.content.memory import MemoryHandles
from toolyard.content.redaction import redact
from toolyard.content.shaping import shape, shape_and_keep
from toolyard.content.shortening import shorten

__all__ = [
    "Handles",
    "Kept",
    "Limits",
    "MemoryHandles",
    "failed",
    "fence",
    "redact",
    "shape",
    "shape_and_keep",
    "shorten",
]
