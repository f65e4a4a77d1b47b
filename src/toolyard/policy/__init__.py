"""May this tool be seen, may this call happen? Pure functions, no I/O; every answer can explain itself.

Prepare a ``Policy`` for a caller, ask it for each server's ``Gate``, and that about each ``Candidate``.
"""

from toolyard.policy.agent_patterns import ToolPatterns, matches_patterns, unused_patterns
from toolyard.policy.bundle_lookup import select_bundles
from toolyard.policy.glob import unused_globs
from toolyard.policy.policy import Policy
from toolyard.policy.refusal import build_refusal
from toolyard.policy.rule import Candidate
from toolyard.policy.server_policy import ServerPolicy

__all__ = [
    "Candidate",
    "Policy",
    "ServerPolicy",
    "ToolPatterns",
    "build_refusal",
    "matches_patterns",
    "select_bundles",
    "unused_globs",
    "unused_patterns",
]
