"""A yard of recording servers: real child processes that write down what happens to them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.processes import own_descendants

from toolyard import Toolyard

RECORDER = Path(__file__).parent / "recording_server.py"


@pytest.fixture(autouse=True)
def nothing_is_left(leaks: None) -> None:
    """Every test of this room ends with the tasks, descriptors and processes that it began with."""


@pytest.fixture(autouse=True)
def nothing_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TOOLYARD_CONFIG_JSON", "TOOLYARD_CONFIG_PATH", "MCP_CONFIG_PATH", "TOOLYARD_WRITE_TOOLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOOLYARD_DATA_DIR", str(tmp_path / "data"))


@dataclass
class JournalServer:
    """A server's entry for ``mcpServers``, and what it wrote down."""

    path: Path
    flags: tuple[str, ...]

    @property
    def entry(self) -> dict[str, Any]:
        words = ["-I", "-S", str(RECORDER), str(self.path), *self.flags]
        return {"command": sys.executable, "args": words}

    def notes(self) -> list[dict[str, Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def starts(self) -> list[int]:
        return [note["start"] for note in self.notes() if "start" in note]

    def messages(self, method: str) -> list[dict[str, Any]]:
        messages = [note["message"] for note in self.notes() if "message" in note]
        return [message for message in messages if message.get("method") == method]

    def calls(self) -> list[str]:
        return [message["params"]["name"] for message in self.messages("tools/call")]


@pytest.fixture
def recorder(tmp_path: Path) -> Callable[..., JournalServer]:
    """``recorder(name, *flags)``: a server that does not run yet."""

    def make(name: str = "one", *flags: str) -> JournalServer:
        return JournalServer(tmp_path / f"journal-{name}", flags)

    return make


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def open_yard(data_dir: Path) -> Callable[..., Toolyard]:
    """``open_yard(servers, bundles=…, **options)``: a yard with these entries of ``mcpServers``."""

    def make(servers: dict[str, Any], *, bundles: dict[str, Any] | None = None, **options: Any) -> Toolyard:
        entries = {key: one.entry if isinstance(one, JournalServer) else one for key, one in servers.items()}
        return Toolyard.open(
            {"mcpServers": entries, "bundles": bundles or {}}, **{"data_dir": data_dir, **options}
        )

    return make


@pytest.fixture
def children() -> Callable[[], list[str]]:
    """The programs that were started below this process since the test began, each by its command line."""
    before = own_descendants()

    def look() -> list[str]:
        log_lines: list[str] = []
        for child in own_descendants() - before:
            with contextlib.suppress(psutil.Error):
                if child.status() != psutil.STATUS_ZOMBIE:
                    log_lines.append(" ".join(child.cmdline()))
        return sorted(log_lines)

    return look
