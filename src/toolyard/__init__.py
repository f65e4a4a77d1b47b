"""Toolyard: one place to connect, scope, authorise and watch every MCP server that your agents use.

This module is the public API of the library; start reading with ``Toolyard`` in ``toolyard.library``. Names
are imported on first use.
"""

from __future__ import annotations

# Not from ``typing``, which takes longer to import than the shim of ``toolyard stdio``.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolyard.clients import Callbacks
    from toolyard.config import discover_config_path, load_config, parse_config
    from toolyard.errors import (
        AgentsError,
        BadAnswer,
        CallTimeout,
        ConfigError,
        HttpStatus,
        OutcomeUnknown,
        RpcError,
        ServerError,
        SessionLost,
        SignInNeeded,
        Throttled,
        ToolRefused,
        ToolyardError,
        Unreachable,
    )
    from toolyard.library import Toolyard
    from toolyard.types.server import State, Status, Timeouts
    from toolyard.types.tool import Result, Tool
    from toolyard.types.version import __version__ as __version__

__all__ = [
    "AgentsError",
    "BadAnswer",
    "CallTimeout",
    "Callbacks",
    "ConfigError",
    "HttpStatus",
    "OutcomeUnknown",
    "Result",
    "RpcError",
    "ServerError",
    "SessionLost",
    "SignInNeeded",
    "State",
    "Status",
    "Throttled",
    "Timeouts",
    "Tool",
    "ToolRefused",
    "Toolyard",
    "ToolyardError",
    "Unreachable",
    "discover_config_path",
    "load_config",
    "parse_config",
]

_MODULE_BY_NAME = {
    "Toolyard": "toolyard.library",
    "Callbacks": "toolyard.clients",
    "Result": "toolyard.types.tool",
    "Timeouts": "toolyard.types.server",
    "State": "toolyard.types.server",
    "Status": "toolyard.types.server",
    "Tool": "toolyard.types.tool",
    "__version__": "toolyard.types.version",
    "discover_config_path": "toolyard.config",
    "load_config": "toolyard.config",
    "parse_config": "toolyard.config",
}


def __dir__() -> list[str]:
    """Return the module's names, including those that are imported on first use."""
    return sorted({*globals(), *__all__, "__version__"})


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that importing the package stays quick."""
    if name not in __all__ and name != "__version__":
        raise AttributeError(f"module 'toolyard' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module(_MODULE_BY_NAME.get(name, "toolyard.errors")), name)
    globals()[name] = value
    return value
