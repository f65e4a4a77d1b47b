"""``toolyard settings``: every setting with its value and origin."""

from __future__ import annotations

import click

from toolyard.cli.app import COMMAND_SUMMARIES
from toolyard.cli.input.options import Command, Options
from toolyard.cli.output.messages import format_problem, show_note
from toolyard.cli.output.safe_text import print_json
from toolyard.cli.output.tables import Column, StyledCell, show_table
from toolyard.config import load_settings
from toolyard.config.settings.table import SettingValue

__all__ = ["command"]

_COLUMNS = (
    Column("setting", style="cyan", never_truncate=True),
    Column("value", wraps=True),
    Column("origin"),
    Column("description", wraps=True, style="dim"),
)


@click.command("settings", cls=Command, short_help=COMMAND_SUMMARIES["settings"])
@click.pass_obj
def command(options: Options) -> None:
    """List the settings, each with its value, origin and description.

    Settings are read from toolyard.toml in the data directory, and from variables such as
    TOOLYARD_WRITE_TOOLS for write_tools. Secrets are not shown.
    """
    settings = load_settings(options.resolved_data_dir)
    table = settings.table()
    if options.json:
        print_json([_setting_json(row) for row in table])
        return
    show_table(_COLUMNS, (_make_row(row) for row in table))
    for hint in settings.hints:
        show_note(format_problem(hint), hint.hint)


def _make_row(row: SettingValue) -> tuple[str, StyledCell, StyledCell, str]:
    changed = row.origin != "default"
    return (
        row.setting.name,
        StyledCell(row.shown, "bold" if changed else ""),
        StyledCell(row.origin, "green" if changed else "dim"),
        row.setting.description,
    )


def _setting_json(row: SettingValue) -> dict[str, object]:
    return {
        "name": row.setting.name,
        "value": row.shown,
        "origin": row.origin,
        "variable": row.setting.variable,
        "secret": row.setting.secret,
        "description": row.setting.description,
    }
