"""A reader at a terminal, who follows a page from its first line to its last, in a new home."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.docs.pages import Example

HOME = "/home/ann"
"""The reader's home in the pages."""
EXAMPLE_DEADLINE_SECONDS = 120
# Exported variables and the final folder of a block are kept for the next one.
_KEEPS = 'trap \'export -p > "$STATE"; pwd >> "$STATE.folder"\' EXIT\n'


class ExampleSession:
    """Runs examples one after another, with the environment of this one activated."""

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        self._home = home
        self._folder = home / "yard"
        self._folder.mkdir(parents=True)
        self._state = home / ".state"
        self._running: list[Screen] = []
        bin = str(Path(sys.executable).parent)
        plain = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        self._env = {
            **plain,
            "PATH": f"{bin}:{os.environ['PATH']}:/usr/sbin",
            "HOME": str(home),
            "TERM": "xterm",
            "COLUMNS": "160",
            "NO_COLOR": "1",
            "TOOLYARD_STANDALONE": "1",
            "STATE": str(self._state),
            **env,
        }

    def run(self, example: Example) -> None:
        """Run an example, and compare its output with that of the page."""
        screen = Screen(self._command(example), self._folder, self._env)
        if example.marker == "keeps running":
            self._running.append(screen)
            screen.wait_for(lambda text: self._shows(example, text), example.place)
            return
        code, stdout = screen.end(example.place)
        exit_code = int(example.marker.removeprefix("ends with ")) if "ends with" in example.marker else 0
        assert code == exit_code, f"{example.place} ended with {code}\n{stdout}"
        if example.shown:
            difference = f"{example.place} shows\n{example.shown}\nbut one sees\n{stdout}"
            assert self._shows(example, stdout), difference
        folder = self._state.with_name(".state.folder")
        if folder.exists():
            self._folder = Path(folder.read_text().splitlines()[-1])

    def _command(self, example: Example) -> list[str]:
        before = '[ ! -e "$STATE" ] || . "$STATE"\n'
        if example.language == "python":
            return ["bash", "-e", "-c", before + 'exec python -c "$0"', example.text]
        keeps = "" if example.marker == "keeps running" else _KEEPS
        return ["bash", "-e", "-c", before + keeps + example.text]

    def _shows(self, example: Example, output: str) -> bool:
        expected_output = f"{example.shown}\n…" if example.marker == "keeps running" else example.shown
        return matches(expected_output, output.replace(str(self._home), HOME))

    def close(self) -> None:
        for screen in self._running:
            screen.stop()


def matches(expected_output: str, output: str) -> bool:
    """Return whether the output matches. ``…`` stands for anything within a line, and alone for any lines.

    Notes that a list waits for a server depend on the load of the machine, and are ignored.
    """
    output = re.sub(r"(?m)^note: waiting for .*\n", "", output)
    lines = [line for line in _lines(expected_output) if line]
    parts = [r"(?:.*\n)*?" if line == "…" else f"{_pattern(line)}\n" for line in lines]
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in _lines(output) if line)) is not None


def on_screen(output: str) -> str:
    """Return the final text of a terminal, without progress that was erased."""
    lines, row, column = [""], 0, 0
    for count, order, text in re.findall(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n]|[^\x1b\r\n]+)", output):
        if text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text == "\r":
            column = 0
        elif text:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + text + line[column + len(text) :]
            column += len(text)
        elif order == "A":
            row = max(row - int(count or 1), 0)
        elif order == "K":
            lines[row] = ""
    return "\n".join(lines)


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


class Screen:
    """One command in a terminal of its own, without keyboard input."""

    def __init__(self, command: list[str], folder: Path, env: Mapping[str, str]) -> None:
        ours, terminal_fd = pty.openpty()
        fcntl.ioctl(terminal_fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=terminal_fd,
            stderr=terminal_fd,
            start_new_session=True,
        )
        os.close(terminal_fd)
        self._printed = b""
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, args=(ours,))
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):  # the end of a terminal that has no more writers
            while piece := os.read(descriptor, 65_536):
                with self._changed:
                    self._printed += piece
                    self._changed.notify()
        os.close(descriptor)
        with self._changed:
            self._ended = True
            self._changed.notify()

    def text(self) -> str:
        return on_screen(self._printed.decode(errors="replace"))

    def wait_for(self, condition: Callable[[str], bool], place: str) -> None:
        """Wait until the output matches."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or condition(self.text()), EXAMPLE_DEADLINE_SECONDS)
        assert condition(self.text()), f"{place} keeps running, and one sees\n{self.text()}"

    def end(self, place: str) -> tuple[int, str]:
        """Wait for the end; return the exit code and the output."""
        try:
            code = self._process.wait(EXAMPLE_DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"{place} does not end; so far\n{self.text()}") from None
        self._reader.join(EXAMPLE_DEADLINE_SECONDS)
        return code, self.text()

    def stop(self) -> None:
        """Terminate it and its child processes; kill those that remain."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            if self._reader.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal_number)
                self._reader.join(30)
        self._process.wait(30)
