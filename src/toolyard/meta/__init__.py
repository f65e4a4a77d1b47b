"""The meta-tool surface: a handful of tools through which a model reaches all that it may use."""

from toolyard.meta.caller_search import Finder
from toolyard.meta.meta_tools import Budgets, MetaTools, Mode, Offer, Reply, directly
from toolyard.meta.tool_definitions import META_TOOLS, RESULT_READ

__all__ = [
    "META_TOOLS",
    "RESULT_READ",
    "Budgets",
    "Finder",
    "MetaTools",
    "Mode",
    "Offer",
    "Reply",
    "directly",
]
