"""Load configuration and settings from files, environment and overrides, validated and with their origin.

Start with ``load_config`` (servers and bundles) and ``load_settings``. Both report all problems at once, in
one ConfigError. The package imports only ``toolyard.errors`` and ``toolyard.types``; its modules are imported
on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolyard.config.configuration_diff import ConfigDiff, diff_configurations
    from toolyard.config.data_dir import default_data_dir
    from toolyard.config.file_approvals import FileApproval, FileApprovals, read_approvals
    from toolyard.config.file_review import Review, ReviewedServer, approve_file, review_file
    from toolyard.config.importers.locations import ClientFile, project_client_files, user_client_files
    from toolyard.config.importers.merge import ImportedServer, ImportPlan, plan_import, write_import
    from toolyard.config.known_servers import example_config
    from toolyard.config.settings.sources import load_settings
    from toolyard.config.settings.table import (
        SETTINGS,
        LogFormat,
        LogLevel,
        PeopleMode,
        RegistrationPreference,
        Setting,
        Settings,
        SettingValue,
        WriteTools,
    )
    from toolyard.config.sources.load import discover_config_path, load_config, parse_config
    from toolyard.config.watch import ConfigBroken, ConfigChange, watch_config
    from toolyard.types.server import Configuration

__all__ = [
    "SETTINGS",
    "ClientFile",
    "ConfigBroken",
    "ConfigChange",
    "ConfigDiff",
    "Configuration",
    "FileApproval",
    "FileApprovals",
    "ImportPlan",
    "ImportedServer",
    "LogFormat",
    "LogLevel",
    "PeopleMode",
    "RegistrationPreference",
    "Review",
    "ReviewedServer",
    "Setting",
    "SettingValue",
    "Settings",
    "WriteTools",
    "approve_file",
    "default_data_dir",
    "diff_configurations",
    "discover_config_path",
    "example_config",
    "load_config",
    "load_settings",
    "parse_config",
    "plan_import",
    "project_client_files",
    "read_approvals",
    "review_file",
    "user_client_files",
    "watch_config",
    "write_import",
]

_EXPORTS_BY_MODULE = {
    "config.file_approvals": ("FileApproval", "FileApprovals", "read_approvals"),
    "config.data_dir": ("default_data_dir",),
    "config.configuration_diff": ("ConfigDiff", "diff_configurations"),
    "config.known_servers": ("example_config",),
    "config.importers.merge": ("ImportPlan", "ImportedServer", "plan_import", "write_import"),
    "config.importers.locations": ("ClientFile", "project_client_files", "user_client_files"),
    "config.sources.load": ("discover_config_path", "load_config", "parse_config"),
    "config.file_review": ("Review", "ReviewedServer", "approve_file", "review_file"),
    "config.settings.sources": ("load_settings",),
    "config.settings.table": (
        *("SETTINGS", "Setting", "SettingValue", "Settings"),
        *("LogFormat", "LogLevel", "PeopleMode", "RegistrationPreference", "WriteTools"),
    ),
    "config.watch": ("ConfigBroken", "ConfigChange", "watch_config"),
    "types.server": ("Configuration",),
}
_MODULE_OF_EXPORT = {name: home for home, names in _EXPORTS_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> object:
    """Import the module of a name on first access, since no command needs all of them."""
    if name not in _MODULE_OF_EXPORT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"toolyard.{_MODULE_OF_EXPORT[name]}"), name)
