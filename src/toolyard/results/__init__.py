"""Conversion of tool results for models: length limits, media, marking of untrusted text, redaction of
secrets.

Imports ``types`` and ``errors`` only. Results over the limit are stored whole under a handle and read in
parts. Start reading at ``model_result.shape_and_store``, then ``result_store`` and ``partial_read``.
"""

from toolyard.results.model_result import error_to_result, shape_and_store, shape_result
from toolyard.results.redaction import redact_secrets
from toolyard.results.result_store import MemoryResultStore, ResultStore, StoredResult
from toolyard.results.truncation import truncate_middle
from toolyard.results.untrusted_text import fence_untrusted_text
from toolyard.types.tool import ResultLimits

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
