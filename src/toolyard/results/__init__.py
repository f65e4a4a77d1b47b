"""Shape results for a model: limits, media, fences, and no secrets in errors."""

from toolyard.results.error_result import error_to_result
from toolyard.results.limits import ResultLimits
from toolyard.results.memory_store import MemoryResultStore
from toolyard.results.redaction import redact_secrets
from toolyard.results.result_store import ResultStore, StoredResult
from toolyard.results.shape import shape_and_store, shape_result
from toolyard.results.truncation import truncate_middle
from toolyard.results.untrusted_text import fence_untrusted_text

__all__ = [
    "MemoryResultStore",
    "ResultLimits",
    "ResultStore",
    "StoredResult",
    "error_to_result",
    "fence_untrusted_text",
    "redact_secrets",
    "shape_and_store",
    "shape_result",
    "truncate_middle",
]
