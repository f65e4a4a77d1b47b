"""The meta-tool surface: a handful of tools through which a model reaches all that it may use."""

from toolyard.meta.caller_search import CallerSearch
from toolyard.meta.meta_tools import (
    MetaToolLimits,
    MetaToolReply,
    MetaTools,
    ToolMode,
    ToolOffer,
    with_direct_mode,
)
from toolyard.meta.tool_definitions import META_TOOLS, RESULT_READ_TOOL

__all__ = [
    "META_TOOLS",
    "RESULT_READ_TOOL",
    "CallerSearch",
    "MetaToolLimits",
    "MetaToolReply",
    "MetaTools",
    "ToolMode",
    "ToolOffer",
    "with_direct_mode",
]
