"""``toolyard demo``: a short tour with a server that comes with the package."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from toolyard.cli.app import run_command
from toolyard.cli.invocation import Command, Options
from toolyard.cli.output.console import style_text

__all__ = ["command", "demo_config", "first_config"]

_TOUR_STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("List the servers and their states.", ("servers",)),
    ("List their tools.", ("tools",)),
    ("Call a tool.", ("call", "demo_weekday", "date=2026-07-28")),
    ("A slow tool reports its progress.", ("call", "demo_count", "to=8")),
    ("Tools that can change data are refused by default. Ask why.", ("why", "demo_forget")),
)
_NEXT_STEPS_TEXT = """
The demo is over and left no files behind. Next steps:

  toolyard import            import the servers of Claude, Cursor, VS Code, opencode, Codex …
  toolyard check             check your configuration
  toolyard servers           connect to your servers and show their states
  toolyard call NAME a=1     call a tool

Servers are configured in mcp.json; `toolyard check` prints the path of yours.
"""


@click.command("demo", cls=Command)
@click.pass_obj
def command(options: Options) -> int:
    """Show the main commands with a small server that comes with Toolyard.

    It runs in a temporary folder and changes none of your files.
    """
    with tempfile.TemporaryDirectory(prefix="toolyard-demo-") as folder:
        config = Path(folder, "mcp.json")
        config.write_text(demo_config(), "utf-8")
        for said, words in _TOUR_STEPS:
            print(f"\n{style_text(f'# {said}', 'dim', sys.stdout)}")
            typed = " ".join(("toolyard", *words))
            print(
                f"{style_text('$', 'green', sys.stdout)} {style_text(typed, 'bold', sys.stdout)}", flush=True
            )
            code = run_command(words, Options(str(config), folder, verbose=options.verbose))
            if code:
                return code
    print(_NEXT_STEPS_TEXT, end="")
    return 0


def demo_config() -> str:
    """Return a configuration with the demo server."""
    return _format_config({"demo": _DEMO_SERVER_ENTRY})


def first_config() -> str:
    """Return the first configuration of `make run`: the demo server and the playground server."""
    about = "Sample tools: a form, a chart, a question and a note"
    playground = {
        "label": "Playground",
        "description": about,
        "command": sys.executable,
        "args": ["-I", "-m", "toolyard.cli.playground_server"],
    }
    return _format_config({"demo": {"label": "Demo", **_DEMO_SERVER_ENTRY}, "playground": playground})


_DEMO_SERVER_ENTRY = {
    "command": sys.executable,
    "args": ["-I", "-S", str(Path(__file__).parent.with_name("demo_server.py"))],
}


def _format_config(servers: Mapping[str, Any]) -> str:
    return json.dumps({"mcpServers": servers}, indent=2) + "\n"
