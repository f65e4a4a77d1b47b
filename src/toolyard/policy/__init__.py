"""Decide which tools a caller may see and call. Pure functions without I/O; every decision can be explained.

Build a ``Policy`` for a caller, compile it per server into a ``ServerPolicy``, and evaluate that for each
tool (``Candidate``). The package imports only ``toolyard.errors`` and ``toolyard.types``. Start with
``policy.py``, which has the order of the rules; the rules themselves are in ``rules.py``.
"""

from toolyard.policy.agent_patterns import ToolPatterns, matches_patterns, unused_patterns
from toolyard.policy.glob import unused_globs
from toolyard.policy.policy import Policy, ServerPolicy, build_hidden_refusal, build_refusal, select_bundles
from toolyard.policy.rules import Candidate

__all__ = [
    "Candidate",
    "Policy",
    "ServerPolicy",
    "ToolPatterns",
    "build_hidden_refusal",
    "build_refusal",
    "matches_patterns",
    "select_bundles",
    "unused_globs",
    "unused_patterns",
]
