"""A server that changes its tools, and an admin and people who use it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, ListeningProgram, ProgramStarter

PROGRAM = ROOT / "tests/servers/changing_server.py"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


@dataclass
class ChangingToolsServer:
    """The file in which its tools stand."""

    file: Path

    def has(self, instructions: str = "", **tools: str) -> None:
        """From now on these are its tools, with these descriptions."""
        tool_list = [
            {"name": name, "description": description, "inputSchema": SCHEMA}
            for name, description in tools.items()
        ]
        self.file.write_text(json.dumps({"instructions": instructions, "tools": tool_list}))

    @property
    def entry(self) -> dict[str, Any]:
        """As a configuration has it."""
        return {"command": sys.executable, "args": ["-I", "-S", str(PROGRAM), str(self.file)]}

    def listen(self, programs: ProgramStarter) -> ListeningProgram:
        """Over HTTP, for the registry."""
        return programs(sys.executable, "-I", PROGRAM, self.file, "{port}")


def changing(folder: Path) -> ChangingToolsServer:
    """Two tools, that read and count."""
    server = ChangingToolsServer(folder / "tools.json")
    server.has(read="Reads a file", count="Counts words")
    return server
