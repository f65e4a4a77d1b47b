"""The meta-tool surface: a handful of tools through which a model reaches all that it may use."""

from toolyard.meta.definitions import META_TOOLS, RESULT_READ
from toolyard.meta.finding import Finder
from toolyard.meta.surface import Budgets, MetaTools, Mode, Offer, Reply, directly

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
