"""The command as people run it: a separate process, with a folder and a data directory of its own."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import prefork
from tests.sqlite_template import copy_template

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram

HERE = Path(__file__).parent
DEMO = HERE.parent.parent / "src/toolyard/cli/demo_server.py"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class CompletedCommand:
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
        own["TOOLYARD_STANDALONE"] = "1"
        return {**keep, **own, **self.env, **more}

    def words(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "toolyard", *map(str, arguments)]

    def __call__(self, *arguments: object, **options: Any) -> CompletedCommand:
        return self.run(self.words(*arguments), **options)

    def run(
        self, words: list[str], *, input: str = "", cwd: Path | None = None, **env: str
    ) -> CompletedCommand:
        result = prefork.run(
            words, input=input, cwd=cwd or self.home, env=self.environment(**env), timeout=100
        )
        assert "Traceback" not in result.stderr, result.stderr
        return CompletedCommand(result.returncode, result.stdout, result.stderr)

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        """Start a command that does not end by itself; the caller ends it."""
        return prefork.Popen(
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
        """Write a configuration, by default to the path that is used without an option."""
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
def starts_file(tmp_path: Path) -> Path:
    """The file in which the server with unusual tools records each of its starts."""
    return tmp_path / "starts"


@pytest.fixture
def unusual_server(starts_file: Path) -> dict[str, Any]:
    """The entry of the server with unusual tools."""
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(HERE / "unusual_tools_server.py"), str(starts_file)],
    }


@pytest.fixture
def demo() -> dict[str, Any]:
    """The entry of the demo server."""
    return {"command": sys.executable, "args": ["-I", "-S", str(DEMO)]}


@pytest.fixture
def cli_with_server(cli: Cli, unusual_server: dict[str, Any]) -> Cli:
    """The command with the server ``odd``, which has unusual tools, in its configuration."""
    cli.write({"mcpServers": {"odd": unusual_server}})
    return cli


# On a terminal.


@dataclass
class Terminal:
    """A command on a pseudo-terminal."""

    process: subprocess.Popen[bytes]
    side: int
    seen: str = ""
    # A read may end in the middle of a character.
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    @property
    def plain(self) -> str:
        return ESCAPE.sub("", self.seen).replace("\r\n", "\n")

    def until(self, condition: Callable[[], bool], seconds: float = 90.0) -> None:
        """Read until the condition holds, or the command has ended."""
        deadline = time.monotonic() + seconds
        while not condition():
            ready, _, _ = select.select([self.side], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"did not come within {seconds:g} s; so far: {self.plain}"
            try:
                data = os.read(self.side, 65536)
            except OSError:  # The other side is closed.
                break
            if not data:
                break
            self.seen += self.decoder.decode(data)

    def wait_for(self, words: str) -> None:
        self.until(lambda: words in self.plain)
        assert words in self.plain

    def type(self, text: str) -> None:
        os.write(self.side, text.encode())

    def end(self) -> int:
        self.until(lambda: False)
        return self.process.wait(30)


@pytest.fixture
def terminal(cli: Cli) -> Any:
    """``terminal(*words)``: start the command on a terminal of its own, 100 columns wide."""
    terminals: list[Terminal] = []

    def start(*words: object, **env: str) -> Terminal:
        side, other = pty.openpty()
        environment = cli.environment(**{"COLUMNS": "100", "LINES": "40", **env})
        process = prefork.Popen(
            cli.words(*words),
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=cli.home,
            env=environment,
            start_new_session=True,
            preexec_fn=prefork.take_terminal,
        )
        os.close(other)
        terminals.append(Terminal(process, side))
        return terminals[-1]

    yield start
    for one in terminals:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(30)
        os.close(one.side)


# Chats.

CHAT_SERVER = HERE.parent / "servers/chat_server.py"


@dataclass
class CliWithChat(Cli):
    """The command with a model that follows a script, and a server for chats."""

    model: str = ""
    journal: Path = Path()

    @property
    def noted(self) -> list[str]:
        """The actions that the server was asked for."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    @property
    def chats(self) -> list[tuple[str, str]]:
        """Title and state of every stored chat, the latest first."""
        if not (self.data / "toolyard.db").exists():
            return []
        with contextlib.closing(sqlite3.connect(self.data / "toolyard.db")) as database:
            return database.execute("SELECT title, state FROM chats ORDER BY updated_at DESC").fetchall()

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The requests that the model received."""
        with urllib.request.urlopen(f"{self.model}/journal", timeout=30) as answer:
            return json.loads(answer.read())

    def release(self) -> None:
        """Release the model where its script holds."""
        urllib.request.urlopen(
            urllib.request.Request(f"{self.model}/release", method="POST"), timeout=30
        ).close()


@pytest.fixture
def cli_with_chat(cli: Cli, tmp_path: Path, model_program: ListeningProgram) -> CliWithChat:
    cli_with_chat = CliWithChat(cli.home, cli.data, model=model_program.url, journal=tmp_path / "journal")
    chat = {"command": sys.executable, "args": ["-I", "-S", str(CHAT_SERVER), str(cli_with_chat.journal)]}
    cli_with_chat.write({"mcpServers": {"chat": chat}})
    copy_template(cli_with_chat.data)
    entry = f'[models.fake]\nmodel = "openai:fake-1"\nbase_url = "{model_program.url}/v1"\napi_key = "good"\n'
    (cli_with_chat.data / "toolyard.toml").write_text(entry)
    return cli_with_chat


@pytest.fixture
def user_folder() -> Generator[Path]:
    """A folder outside that of pytest, which every new session closes to other users."""
    with tempfile.TemporaryDirectory(prefix="toolyard-") as name:
        yield Path(name)
