"""Meta tools: five tools with which a model can search, describe and call all tools available to it.

They replace long tool lists in prompts. This package may import ``catalog``, ``clients``, ``policy`` and
``results``. Start reading at ``meta_tools.MetaTools``.
"""

from toolyard.meta_tools.caller_search import CallerSearch
from toolyard.meta_tools.meta_tools import (
    ExposedTools,
    MetaToolLimits,
    MetaToolReply,
    MetaTools,
    ToolMode,
    with_direct_mode,
)
from toolyard.meta_tools.tool_definitions import META_TOOLS, RESULT_READ_TOOL

__all__ = [
    "META_TOOLS",
    "RESULT_READ_TOOL",
    "CallerSearch",
    "ExposedTools",
    "MetaToolLimits",
    "MetaToolReply",
    "MetaTools",
    "ToolMode",
    "with_direct_mode",
]
