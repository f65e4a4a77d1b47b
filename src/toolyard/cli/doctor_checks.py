"""What ``toolyard doctor`` finds out: about this machine, and about each server's start, step by step."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from toolyard import __version__
from toolyard.auth import AuthProvider
from toolyard.catalog.token_estimate import estimate_definition
from toolyard.catalog.tool_validation import judge
from toolyard.cli.output.notices import clean
from toolyard.cli.output.safe_text import count, one_line
from toolyard.cli.traced_transport import Step, Traced
from toolyard.clients.connector import Dialer
from toolyard.clients.pagination import collect
from toolyard.clients.session import Link, Patience
from toolyard.config.value_checks import without_secrets
from toolyard.errors import CallTimeout, RpcError, ServerError, SignInNeeded, Throttled, Unreachable
from toolyard.transports.stdio.supervisor import child_environment
from toolyard.transports.transport import TransportFacts
from toolyard.types.server import HttpSpec, Server, StdioSpec

__all__ = ["Examined", "Fact", "examine_machine", "examine_server"]

_RUNNERS = ("node", "npx", "uvx", "docker")
_LAST_WORDS = 5


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing about this machine. ``ok`` is None where it is neither good nor bad."""

    name: str
    text: str
    ok: bool | None = True
    hint: str | None = None


@dataclass(slots=True)
class Examined:
    """How the start of one server went."""

    server: Server
    steps: list[Step] = field(default_factory=list[Step])
    cause: str | None = None
    hint: str | None = None
    stderr: list[str] = field(default_factory=list[str])

    @property
    def ok(self) -> bool:
        """Whether it answered to the end."""
        return self.cause is None

    @property
    def skipped(self) -> bool:
        """Whether it is off, and so was not tried."""
        return not self.server.enabled


# This machine.


async def examine_machine(folder: Path) -> list[Fact]:
    """Versions, the data directory, and the programs that servers are often started with."""
    runners = await asyncio.gather(*(asyncio.to_thread(_runner, name) for name in _RUNNERS))
    return [
        Fact("toolyard", __version__, None),
        Fact("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}", None),
        _uvloop(),
        _data_dir(folder),
        *runners,
    ]


def _uvloop() -> Fact:
    from importlib.metadata import PackageNotFoundError, version  # slow to load

    try:
        return Fact("uvloop", version("uvloop"))
    except PackageNotFoundError:
        hint = None if sys.platform == "win32" else "install uvloop for quicker connections"
        return Fact("uvloop", "not installed, asyncio's own loop is used", None, hint)


def _data_dir(folder: Path) -> Fact:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        return Fact(
            "data directory", f"{folder}: {there} is no folder", False, "name another with --data-dir"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        hint = f"change the owner of {there}, or name another folder with --data-dir"
        return Fact("data directory", f"{folder} cannot be written", False, hint)
    return Fact("data directory", f"{folder}{'' if there == folder else ' (not made yet)'}")


def _runner(name: str) -> Fact:
    path = shutil.which(name)
    if path is None:
        return Fact(name, "not on PATH", None)
    try:
        told = subprocess.run(
            [path, "--version"], capture_output=True, timeout=5, text=True, errors="replace", check=False
        )
        version = one_line(told.stdout or told.stderr, 60)
    except (OSError, subprocess.TimeoutExpired):
        version = "does not tell its version"
    return Fact(name, f"{path} {version}")


# One server.


async def examine_server(server: Server, auth: AuthProvider | None = None) -> Examined:
    """Start it, find its era, list its tools, and end it, writing down each step. Raises nothing.

    ``auth`` is how one is signed in to it.
    """
    found = Examined(server)
    if found.skipped:
        found.cause = server.disabled_reason or "switched off in its entry"
        return found
    _find_command(server, found)
    if found.ok:
        # An own dialer without memory: the question of the era is part of what is looked at.
        dialer = Dialer(info={"name": "toolyard doctor", "version": __version__})
        try:
            await _converse(server, dialer, auth, found)
        finally:
            await dialer.close()
    for step in found.steps:
        if step.seconds is None:
            step.detail = clean(step.detail or found.cause or "", server)
    return found


def _find_command(server: Server, found: Examined) -> None:
    spec = server.transport
    if not isinstance(spec, StdioSpec):
        return
    step = Step("command", time.perf_counter())
    path = shutil.which(spec.command, path=child_environment(spec.env).get("PATH"))
    if path is None and os.path.dirname(spec.command):
        # A path, which may lead from the server's own folder: the start tells what is wrong with it.
        return
    found.steps.append(step)
    if path is None:
        found.cause = f"command not found: {spec.command}"
        found.hint = "install it, or give its full path in 'command'"
        return
    step.end()
    step.detail = path


async def _converse(server: Server, dialer: Dialer, auth: AuthProvider | None, found: Examined) -> None:
    links: list[Link] = []
    stdio = isinstance(server.transport, StdioSpec)

    def began(link: Link) -> None:
        link.transport = Traced(link.transport, found.steps, "spawn" if stdio else None)
        links.append(link)

    seconds = server.timeouts.connect
    try:
        async with asyncio.timeout(seconds):
            link = await dialer.dial(server, began, auth)
        _note_era(link, found)
        await _list(server, link, found)
    except TimeoutError:
        _failed(found, Unreachable(f"did not answer within {seconds:g} s"))
        found.hint = "raise 'timeouts.connect' if it needs longer to start"
    except ServerError as error:
        _failed(found, error)
    finally:
        facts = links[-1].transport.facts() if links else TransportFacts()
        with contextlib.suppress(ServerError):
            await asyncio.gather(*(link.close() for link in links))
    if not found.ok:
        lines = [clean(line, server) for line in facts.stderr]
        found.stderr = [line for line in lines if line][-_LAST_WORDS:]


def _note_era(link: Link, found: Examined) -> None:
    facts = link.facts
    if facts is None:
        return
    name = "modern" if facts.modern else "legacy"
    info = " ".join(str(facts.info[key]) for key in ("name", "version") if key in facts.info)
    wanted = "server/discover" if facts.modern else "initialize"
    for step in found.steps:
        if step.name == wanted and step.refusal is None:
            step.detail = one_line(f"{name} era, {facts.version}, {info}", 100)
        elif step.name == "server/discover":
            step.detail = "not of the modern era"


async def _list(server: Server, link: Link, found: Examined) -> None:
    if link.facts is not None and "tools" not in link.facts.capabilities:
        step = Step("tools/list", time.perf_counter(), detail="it offers no tools")
        step.end()
        found.steps.append(step)
        return
    patience = Patience(server.timeouts.silence, server.timeouts.call)
    listing = await collect(
        "tools/list", "tools", lambda params: link.request("tools/list", params, patience)
    )
    judged = judge(server.id, listing.items)
    tokens = sum(map(estimate_definition, judged.definitions))
    words = f"{count(len(judged.definitions), 'tool')}, about {count(tokens, 'token')}"
    if judged.quarantined:
        words += f"; {len(judged.quarantined)} set aside"
    found.steps[-1].detail = words


def _failed(found: Examined, error: ServerError) -> None:
    found.cause = clean(error.cause, found.server)
    found.hint = error.hint or _next(error, found.server)


def _next(error: ServerError, server: Server) -> str:
    """What to do about a failure that does not say it itself."""
    spec = server.transport
    if isinstance(error, SignInNeeded):
        return "give it credentials: put them into 'headers' of its entry, from a variable"
    if isinstance(error, Throttled):
        return "it is too busy: try again later"
    if isinstance(error, CallTimeout):
        return "raise 'timeouts.silence' in its entry if it needs longer"
    if isinstance(spec, HttpSpec):
        address = without_secrets(spec.url)
        return f"is the address right, and does something answer there? Try: curl -i {address}"
    if isinstance(error, RpcError | Unreachable):
        return "run its command by hand in a terminal, and read what it says"
    return "is it really an MCP server? Run its command by hand, and read what it says"
