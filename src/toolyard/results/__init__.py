"""Shape results for a model: limits, media, fences, and no secrets in errors."""

from toolyard.results.error_result import failed
from toolyard.results.limits import Limits
from toolyard.results.memory_store import MemoryHandles
from toolyard.results.redaction import redact
from toolyard.results.result_store import Handles, Kept
from toolyard.results.shape import shape, shape_and_keep
from toolyard.results.truncation import shorten
from toolyard.results.untrusted_text import fence

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
