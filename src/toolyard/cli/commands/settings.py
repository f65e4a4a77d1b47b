"""``toolyard settings``: every setting with its value and origin."""

from __future__ import annotations

import click

from toolyard.cli.invocation import Command, Options
from toolyard.cli.output.console import Column, StyledCell, format_problem, print_json, show_note, show_table
from toolyard.config.settings.table import SettingValue

__all__ = ["command"]

_COLUMNS = (
    Column("setting", style="cyan", never_truncate=True),
    Column("value", wraps=True),
    Column("origin"),
    Column("description", wraps=True, style="dim"),
)


@click.command("settings", cls=Command)
@click.pass_obj
def command(options: Options) -> None:
    """List the settings, each with its value, origin and description.

    Settings are read from toolyard.toml in the data directory, and from variables such as
    TOOLYARD_WRITE_TOOLS for write_tools. Secrets are not shown.
    """
    settings = options.load_settings()
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
