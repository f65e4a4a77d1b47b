"""The checks of ``toolyard doctor``: this machine, and the start of each server step by step.

The steps are recorded by a wrapper around the server's transport, with duration and outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from toolyard.auth import AuthProvider
from toolyard.catalog.token_costs import estimate_definition_tokens
from toolyard.catalog.tool_validation import validate_tools
from toolyard.cli.output.console import format_count, one_line
from toolyard.cli.output.notices import clean_server_text
from toolyard.clients.connector import Connector, connect_timeout_hint
from toolyard.clients.pagination import collect_pages
from toolyard.clients.secret_redaction import find_secrets
from toolyard.clients.session import McpSession
from toolyard.config.value_checks import mask_url_secrets
from toolyard.errors import CallTimeout, RpcError, ServerError, SignInNeeded, Throttled, Unreachable
from toolyard.protocol.eras import ERAS
from toolyard.protocol.framing import Line
from toolyard.protocol.jsonrpc import Message
from toolyard.results import redact_secrets
from toolyard.transports.stdio.supervisor import build_child_environment
from toolyard.transports.transport import Receiver, Transport, TransportInfo
from toolyard.types.call import McpRequest
from toolyard.types.server import HttpSpec, Server, StdioSpec
from toolyard.types.version import __version__

__all__ = [
    "ConnectionStep",
    "MachineCheck",
    "ServerCheck",
    "TracedTransport",
    "check_machine",
    "check_server",
]


@dataclass(slots=True)
class ConnectionStep:
    """One step. ``seconds`` is None until it has ended; ``refusal`` holds an error response."""

    name: str
    started_at: float
    seconds: float | None = None
    refusal: str | None = None
    detail: str = ""

    def end(self, refusal: str | None = None) -> None:
        """Record the end of the step."""
        if self.seconds is None:
            self.seconds, self.refusal = time.perf_counter() - self.started_at, refusal


class TracedTransport:
    """Wraps a transport and records each step, without changing anything."""

    _receiver: Receiver
    """Set before the transport is opened, so before anything is received."""

    def __init__(self, inner: Transport, steps: list[ConnectionStep], open_step_name: str | None) -> None:
        self._inner = inner
        self._steps = steps
        self._open_step_name = open_step_name
        self._pending_steps: dict[object, ConnectionStep] = {}

    @property
    def cancels_on_disconnect(self) -> bool:
        return self._inner.cancels_on_disconnect

    @property
    def mirrors_headers(self) -> bool:
        return self._inner.mirrors_headers

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._open_step_name is None:
            await self._inner.open(self)
            return
        step = self._start_step(self._open_step_name)
        await self._inner.open(self)
        step.end()
        pid = self._inner.get_info().pid
        step.detail = "" if pid is None else f"process {pid}"

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if "method" in message and "id" in message:
            self._pending_steps[message["id"]] = self._start_step(str(message["method"]))
        await self._inner.send(message, headers)

    def should_decode(self, undecoded: Line) -> bool:
        return self._receiver.should_decode(undecoded)

    def on_stray_lines(self, number: int, size: int, kind: Literal["line", "stderr"] = "line") -> None:
        self._receiver.on_stray_lines(number, size, kind)

    def on_message(self, message: object, size: int = 0) -> None:
        self._receiver.on_message(message, size)
        if isinstance(message, dict):
            self._on_response(cast("dict[str, Any]", message))

    def on_lost(self, error: ServerError) -> None:
        for step in self._pending_steps.values():
            step.detail = error.cause
        self._receiver.on_lost(error)

    def set_protocol_version(self, version: str) -> None:
        self._inner.set_protocol_version(version)

    def start_listening(self) -> None:
        self._inner.start_listening()

    def get_info(self) -> TransportInfo:
        return self._inner.get_info()

    async def close(self) -> None:
        await self._inner.close()

    def _start_step(self, name: str) -> ConnectionStep:
        step = ConnectionStep(name, time.perf_counter())
        self._steps.append(step)
        return step

    def _on_response(self, message: dict[str, Any]) -> None:
        step = self._pending_steps.pop(message.get("id"), None) if "method" not in message else None
        if step is not None:
            failure = message.get("error")
            told = cast("dict[str, Any]", failure).get("message") if isinstance(failure, dict) else None
            step.end(None if failure is None else str(told))


_LAUNCHER_PROGRAMS = ("node", "npx", "uvx", "docker")
_MAX_STDERR_LINES = 5


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """One fact about this machine. ``ok`` is None if it is neither good nor bad."""

    name: str
    text: str
    ok: bool | None = True
    hint: str | None = None


@dataclass(slots=True)
class ServerCheck:
    """The start of one server."""

    server: Server
    steps: list[ConnectionStep] = field(default_factory=list[ConnectionStep])
    cause: str | None = None
    hint: str | None = None
    stderr: list[str] = field(default_factory=list[str])

    @property
    def is_ok(self) -> bool:
        """Return whether the server answered every step."""
        return self.cause is None

    @property
    def is_skipped(self) -> bool:
        """Return whether the server is disabled, and so was not started. An invalid entry counts as tried."""
        return not self.server.enabled and not self.server.problems


# This machine.


async def check_machine(data_dir: Path) -> list[MachineCheck]:
    """Check versions, the data directory, and the programs that servers are often started with."""
    runners = await asyncio.gather(*(asyncio.to_thread(_check_launcher, name) for name in _LAUNCHER_PROGRAMS))
    return [
        MachineCheck("toolyard", __version__, None),
        MachineCheck(
            "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}", None
        ),
        _check_uvloop(),
        _check_data_dir(data_dir),
        *runners,
    ]


def _check_uvloop() -> MachineCheck:
    from importlib.metadata import PackageNotFoundError, version  # slow to load

    try:
        return MachineCheck("uvloop", version("uvloop"))
    except PackageNotFoundError:
        hint = None if sys.platform == "win32" else "install uvloop for faster connections"
        return MachineCheck("uvloop", "not installed, asyncio's own loop is used", None, hint)


def _check_data_dir(data_dir: Path) -> MachineCheck:
    there = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    if not there.is_dir():
        return MachineCheck(
            "data directory", f"{data_dir}: {there} is not a folder", False, "choose another with --data-dir"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        hint = f"change the owner of {there}, or name another folder with --data-dir"
        return MachineCheck("data directory", f"{data_dir} cannot be written", False, hint)
    return MachineCheck("data directory", f"{data_dir}{'' if there == data_dir else ' (does not exist yet)'}")


def _check_launcher(name: str) -> MachineCheck:
    path = shutil.which(name)
    if path is None:
        return MachineCheck(name, "not on PATH", None)
    try:
        told = subprocess.run(
            [path, "--version"], capture_output=True, timeout=5, text=True, errors="replace", check=False
        )
        version = one_line(told.stdout or told.stderr, 60)
    except (OSError, subprocess.TimeoutExpired):
        version = "version unknown"
    return MachineCheck(name, f"{path} {version}")


# One server.


async def check_server(server: Server, auth: AuthProvider | None = None) -> ServerCheck:
    """Start a server, probe its era, list its tools and stop it, recording each step. Never raises.

    ``auth`` holds the sign-in for it.
    """
    found = ServerCheck(server)
    if server.problems:
        found.cause, found.hint = server.problem_text, server.problem_hint
        return found
    if found.is_skipped:
        found.cause = server.disabled_reason or "turned off in its entry"
        return found
    _check_command(server, found)
    if found.is_ok:
        # A new connector without cached eras: probing the era is part of the check.
        dialer = Connector(client_info={"name": "toolyard doctor", "version": __version__})
        try:
            await _connect_and_list(server, dialer, auth, found)
        finally:
            await dialer.close()
            await dialer.process_supervisor.close()
    token: str | None = getattr(auth, "access_token", None)
    secrets = find_secrets(server) if token is None else (*find_secrets(server), token)
    for step in found.steps:
        if step.seconds is None:
            step.detail = one_line(step.detail or found.cause or "")
        step.detail = redact_secrets(step.detail, secrets)
        step.refusal = None if step.refusal is None else redact_secrets(step.refusal, secrets)
    found.cause = None if found.cause is None else redact_secrets(found.cause, secrets)
    return found


def _check_command(server: Server, server_check: ServerCheck) -> None:
    spec = server.transport
    if not isinstance(spec, StdioSpec):
        return
    step = ConnectionStep("command", time.perf_counter())
    path = shutil.which(spec.command, path=build_child_environment(spec.env).get("PATH"))
    if path is None and os.path.dirname(spec.command):
        # A path, possibly relative to the server's folder: the start reports the problem with it.
        return
    server_check.steps.append(step)
    if path is None:
        server_check.cause = f"command not found: {spec.command}"
        server_check.hint = "install it, or give its full path in 'command'"
        return
    step.end()
    step.detail = path


async def _connect_and_list(
    server: Server, connector: Connector, auth: AuthProvider | None, server_check: ServerCheck
) -> None:
    links: list[McpSession] = []
    stdio = isinstance(server.transport, StdioSpec)

    def trace_session(session: McpSession) -> None:
        session.transport = TracedTransport(session.transport, server_check.steps, "spawn" if stdio else None)
        links.append(session)

    seconds = server.timeouts.connect
    try:
        async with asyncio.timeout(seconds):
            link = await connector.connect(server, trace_session, auth)
        _record_era(link, server_check)
        await _list_tools(server, link, server_check)
    except TimeoutError:
        _record_failure(server_check, Unreachable(f"did not answer within {seconds:g} s"))
        lines = links[-1].transport.get_info().skipped_lines if links else 0
        server_check.hint = connect_timeout_hint(server, lines)
    except ServerError as error:
        _record_failure(server_check, error)
    finally:
        facts = links[-1].transport.get_info() if links else TransportInfo()
        with contextlib.suppress(ServerError):
            await asyncio.gather(*(link.close() for link in links))
    if not server_check.is_ok:
        lines = [clean_server_text(line, server) for line in facts.stderr]
        server_check.stderr = [line for line in lines if line][-_MAX_STDERR_LINES:]


def _record_era(session: McpSession, server_check: ServerCheck) -> None:
    facts = session.handshake_result
    if facts is None:
        return
    era = facts.era
    info = " ".join(str(facts.info[key]) for key in ("name", "version") if key in facts.info)
    for step in server_check.steps:
        if step.name == era.handshake_method and step.refusal is None:
            step.detail = one_line(f"{era.name} era, {facts.version}, {info}", 100)
        elif any(step.name == each.handshake_method for each in ERAS):
            step.detail = "not supported"


async def _list_tools(server: Server, session: McpSession, server_check: ServerCheck) -> None:
    if session.handshake_result is not None and "tools" not in session.handshake_result.capabilities:
        step = ConnectionStep("tools/list", time.perf_counter(), detail="it offers no tools")
        step.end()
        server_check.steps.append(step)
        return
    listing = await collect_pages(
        "tools/list",
        "tools",
        lambda params: session.request(McpRequest("tools/list", params), server.timeouts),
    )
    judged = validate_tools(server.id, listing.items)
    tokens = sum(map(estimate_definition_tokens, judged.definitions))
    words = f"{format_count(len(judged.definitions), 'tool')}, about {format_count(tokens, 'token')}"
    if judged.quarantined:
        words += f"; {len(judged.quarantined)} in quarantine"
    server_check.steps[-1].detail = words


def _record_failure(server_check: ServerCheck, error: ServerError) -> None:
    server_check.cause = clean_server_text(error.cause, server_check.server)
    server_check.hint = error.hint or _suggest_fix(error, server_check.server)


def _suggest_fix(error: ServerError, server: Server) -> str:
    """Suggest a remedy for a failure that has no hint of its own."""
    spec = server.transport
    if isinstance(error, SignInNeeded):
        return "add credentials to 'headers' of its entry, from a variable"
    if isinstance(error, Throttled):
        return "the server is busy: try again later"
    if isinstance(error, CallTimeout):
        return "raise 'timeouts.silence' in its entry if it needs longer"
    if isinstance(spec, HttpSpec):
        address = mask_url_secrets(spec.url)
        return f"check the address, e.g. with: curl -i {address}"
    if isinstance(error, RpcError | Unreachable):
        return "run its command in a terminal and read its output"
    return "run its command in a terminal to check that it is an MCP server"
