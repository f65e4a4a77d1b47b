"""The command as people run it: a process of its own, in a folder and with a data directory of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
DEMO = HERE.parent.parent / "src/toolyard/cli/demo_server.py"


@dataclass
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass
class Cli:
    """Runs ``toolyard``. ``home`` is its working directory and its user's home."""

    home: Path
    data: Path
    env: dict[str, str] = field(default_factory=dict[str, str])

    def environment(self, **more: str) -> dict[str, str]:
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        own = {"HOME": str(self.home), "TOOLYARD_DATA_DIR": str(self.data), "TERM": "xterm-256color"}
        return {**keep, **own, **self.env, **more}

    def words(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "toolyard", *map(str, arguments)]

    def __call__(self, *arguments: object, **options: Any) -> Ran:
        return self.run(self.words(*arguments), **options)

    def run(self, words: list[str], *, input: str = "", cwd: Path | None = None, **env: str) -> Ran:
        done = subprocess.run(
            words,
            input=input,
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=cwd or self.home,
            env=self.environment(**env),
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        """One that does not end by itself; the caller ends it."""
        return subprocess.Popen(
            self.words(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
            env=self.environment(),
            **options,
        )

    def write(self, config: object, name: str = "mcp.json") -> Path:
        """Write a configuration, by default where it is used without being named."""
        path = (self.data if name == "mcp.json" else self.home) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config if isinstance(config, str) else json.dumps(config, indent=2), "utf-8")
        return path

    def agents(self, text: str) -> Path:
        self.data.mkdir(parents=True, exist_ok=True)
        path = self.data / "AGENTS.md"
        path.write_text(text)
        return path


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir()
    return Cli(home, tmp_path / "data")


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    """The file in which the odd server notes each of its starts."""
    return tmp_path / "starts"


@pytest.fixture
def odd(starts: Path) -> dict[str, Any]:
    """The entry of the odd server."""
    return {"command": sys.executable, "args": ["-I", "-S", str(HERE / "odd_server.py"), str(starts)]}


@pytest.fixture
def demo() -> dict[str, Any]:
    """The entry of the demo server."""
    return {"command": sys.executable, "args": ["-I", "-S", str(DEMO)]}


@pytest.fixture
def yard(cli: Cli, odd: dict[str, Any]) -> Cli:
    """The command with the odd server in its configuration."""
    cli.write({"mcpServers": {"odd": odd}})
    return cli
