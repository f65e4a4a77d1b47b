"""A workspace with files of users and attackers, and secrets beside it."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolyard.agents.builtin_tools.workspace import Workspace

CANARY = "CANARY-7f3a"
"""Text in every file outside the workspace, and in none inside."""
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)


@dataclass(frozen=True)
class WorkspaceFixture:
    """``root`` is the workspace; ``outside`` and ``data`` hold the canary, the second within the root."""

    root: Path
    outside: Path
    data: Path
    canary: str = CANARY
    png: bytes = PNG

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.root, self.data)

    def write(self, path: str, text: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file


def create_tree(folder: Path) -> WorkspaceFixture:
    """Create the tree, with every kind of link out of it."""
    tree = WorkspaceFixture(folder / "work", folder / "outside", folder / "work" / "state")
    for each in (
        tree.root,
        tree.outside / "deep",
        tree.data / "deep",
        tree.root / "src" / "sub",
        tree.root / ".git",
    ):
        each.mkdir(parents=True)
    for each in (tree.outside / "secret.txt", tree.outside / "deep" / "secret.txt"):
        each.write_text(f"outside {CANARY}\n")
    for each in (tree.data / "secret.key", tree.data / "deep" / "secret.txt", tree.root / ".git" / "config"):
        each.write_text(f"hidden {CANARY}\n")
    tree.write("README.md", "# Title\nfirst line\nsecond line\n")
    tree.write("src/app.py", "import os\n\ndef main():\n    return os.name\n")
    tree.write("src/sub/deep.py", "def deep():\n    return 1\n")
    for name, target in LINKS.items():
        (tree.root / name).symlink_to(target.format(outside=tree.outside, root=tree.root, data=tree.data))
    os.mkfifo(tree.root / "pipe")
    with socket.socket(socket.AF_UNIX) as unix_socket:
        here = os.getcwd()
        os.chdir(tree.root)  # The path of a socket is short.
        unix_socket.bind("socket")
        os.chdir(here)
    return tree


LINKS = {
    "to-file": "{outside}/secret.txt",
    "to-folder": "{outside}",
    "up": "..",
    "far-up": "../../../../../../../../../..",
    "sideways": "../outside",
    "to-root": "/",
    "to-proc": "/proc/self/environ",
    "to-fd": "/proc/self/fd",
    "to-dev": "/dev/zero",
    "to-data": "state",
    "to-data-abs": "{data}",
    "loop": "loop",
    "ping": "pong",
    "pong": "ping",
    "src/out": "../../outside",
    "src/chain": "out/deep",
    "inside": "src/app.py",
    "inside-abs": "{root}/src/app.py",
    "inside-folder": "src",
    "sneaky": "src/../../outside/secret.txt",
    "dangling": "src/nothing",
}


@pytest.fixture
def tree(tmp_path: Path) -> WorkspaceFixture:
    return create_tree(tmp_path)


@pytest.fixture(scope="module")
def lasting_tree(tmp_path_factory: pytest.TempPathFactory) -> WorkspaceFixture:
    """One tree for many examples, which only read it."""
    return create_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="session")
def rg() -> str:
    """The program ripgrep."""
    modules = Path(__file__).parents[3] / ".envs/node/node_modules"
    ripgrep = shutil.which("rg") or next(map(str, modules.glob("@vscode/ripgrep*/bin/rg")), None)
    if ripgrep is None:
        pytest.skip("ripgrep is not installed")
    return ripgrep


@pytest.fixture(params=["own", "ripgrep"])
def program(request: pytest.FixtureRequest) -> str:
    """The grep engine: ``""`` for our own, else the path of ripgrep."""
    return "" if request.param == "own" else request.getfixturevalue("rg")


@pytest.fixture
def matchers() -> Callable[[], int]:
    """``matchers()``: the number of our child processes that match patterns now."""
    return lambda: len(matcher_pids())


def matcher_pids() -> list[int]:
    """Return our child processes that match patterns."""
    own_numbers: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if b"toolyard.agents.builtin_tools.grep_worker" in words and parent == str(os.getpid()):
                own_numbers.append(int(name))
    return own_numbers
