"""``toolyard doctor``: why does it not work?"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.error_exit import Usage, ended
from toolyard.cli.input.completion import complete_servers
from toolyard.cli.input.options import Command, Options
from toolyard.cli.output.messages import show_finding
from toolyard.cli.output.progress import Busy
from toolyard.cli.output.safe_text import count, duration, one_line, print_json
from toolyard.cli.output.terminal import paint
from toolyard.cli.runner import run_async
from toolyard.config import load_config, load_settings
from toolyard.errors import ConfigError
from toolyard.types.config import Configuration
from toolyard.types.server import HttpSpec, Server

if TYPE_CHECKING:
    from toolyard.auth import AuthProvider
    from toolyard.cli.doctor_checks import Examined, Fact
    from toolyard.cli.traced_transport import Step

__all__ = ["command"]

_UNREACHABLE = 3


@click.command("doctor", cls=Command, short_help=COMMANDS["doctor"])
@click.argument("servers", metavar="[SERVER]...", nargs=-1, shell_complete=complete_servers)
@click.pass_obj
def command(options: Options, servers: tuple[str, ...]) -> int:
    """Look at this machine, then start each enabled server step by step, with times, and say what to do about
    each failure. With SERVER, only those.

    Exits with 3 when a server does not work, with 2 when the configuration cannot be read.
    """
    return run_async(_doctor(options, servers))


async def _doctor(options: Options, wanted: tuple[str, ...]) -> int:
    from toolyard.cli.doctor_checks import examine_machine  # slow to load, and not for the help

    facts = await examine_machine(options.folder)
    if not options.json:
        _show_facts(facts)
    machine = [_fact_json(fact) for fact in facts]
    try:
        configuration = load_config(options.config, data_dir=options.folder)
        chosen = _chosen(configuration, wanted)
    except (ConfigError, Usage) as error:
        return ended(error, options, environment=machine)
    examined = await _examine(chosen, options)
    broken = [one for one in examined if not one.ok and not one.skipped]
    if options.json:
        print_json(
            {
                "environment": machine,
                "configuration": configuration.file,
                "servers": [_examined_json(one) for one in examined],
            }
        )
    else:
        _show_sum(configuration, examined, broken)
    return _UNREACHABLE if broken else 0


def _chosen(configuration: Configuration, wanted: Sequence[str]) -> list[Server]:
    servers = configuration.servers
    for server_id in wanted:
        if server_id not in servers:
            raise Usage(
                f"there is no server '{server_id}'", hint=f"there are: {', '.join(servers) or 'none'}"
            )
    return [server for server in servers.values() if not wanted or server.id in wanted]


async def _examine(servers: list[Server], options: Options) -> list[Examined]:
    """One after the other: side by side they would spoil each other's times."""
    from toolyard.cli.doctor_checks import examine_server  # loaded with the machine's part

    examined: list[Examined] = []
    async with _signed_in(options) as auth_for:
        for server in servers:
            async with Busy(f"starting {server.id}", quiet=options.json):
                one = await examine_server(server, auth_for(server))
            examined.append(one)
            if not options.json:
                _show_examined(one)
    return examined


@asynccontextmanager
async def _signed_in(options: Options) -> AsyncGenerator[Callable[[Server], AuthProvider | None]]:
    """How one is signed in to each server by `toolyard login`."""
    from toolyard.core.composition import stored_sign_ins
    from toolyard.net import Net
    from toolyard.store.lazy_database import LazyDatabase
    from toolyard.types.principal import LOCAL  # loaded with the machine's part

    settings, net = load_settings(options.folder), Net()
    database = LazyDatabase(settings, options.folder)
    auth_for = stored_sign_ins(database, net)
    try:
        yield lambda server: auth_for(server, LOCAL) if isinstance(server.transport, HttpSpec) else None
    finally:
        await net.close()
        await database.close()


def _show_facts(facts: Sequence[Fact]) -> None:
    for fact in facts:
        colour = {True: "green", False: "red", None: "dim"}[fact.ok]
        mark = {True: "ok", False: "no", None: "--"}[fact.ok]
        print(f"{paint(mark, colour, sys.stdout)}  {fact.name:<15} {one_line(fact.text)}")
        if fact.hint:
            show_finding("hint", fact.hint, None, sys.stdout)


def _show_examined(one: Examined) -> None:
    state = paint("off", "dim", sys.stdout) if one.skipped else ""
    print(f"\n{paint(one_line(one.server.id), 'cyan', sys.stdout)}  {_what(one.server)}  {state}".rstrip())
    for step in one.steps:
        _show_step(step)
    if one.skipped:
        print(f"  {paint('--', 'dim', sys.stdout)}  {one.cause}")
    elif one.cause is not None and all(step.seconds is not None for step in one.steps):
        print(f"  {paint('no', 'red', sys.stdout)}  {one.cause}")
    for line in one.stderr:
        print(f"      {paint(f'stderr: {line}', 'dim', sys.stdout)}")
    if one.hint:
        show_finding("hint", one.hint, None, sys.stdout)


def _show_step(step: Step) -> None:
    ended_well = step.seconds is not None
    mark = paint("ok", "green", sys.stdout) if ended_well else paint("no", "red", sys.stdout)
    took = duration(step.seconds) if step.seconds is not None else "-"
    said = f"answered '{one_line(step.refusal, 60)}'; " if step.refusal else ""
    print(f"  {mark}  {step.name:<16} {took:>8}  {said}{one_line(step.detail)}".rstrip())


def _what(server: Server) -> str:
    from toolyard.config.value_checks import without_secrets  # not for the help

    spec = server.transport
    if isinstance(spec, HttpSpec):
        return f"{spec.type} {without_secrets(spec.url)}"
    return f"stdio {one_line(spec.command)}"


def _show_sum(configuration: Configuration, examined: list[Examined], broken: list[Examined]) -> None:
    tried = [one for one in examined if not one.skipped]
    print(f"\nconfiguration: {configuration.file or 'no file'}")
    if broken:
        failed = f"{len(broken)} of {count(len(tried), 'server')} failed"
        print(f"{paint(failed, 'red', sys.stdout)}: {', '.join(one.server.id for one in broken)}")
    else:
        verb = "works" if len(tried) == 1 else "work"
        print(paint(f"{count(len(tried), 'server')} {verb}", "green", sys.stdout))


def _fact_json(fact: Fact) -> dict[str, Any]:
    return {"name": fact.name, "text": fact.text, "ok": fact.ok, "hint": fact.hint}


def _examined_json(one: Examined) -> dict[str, Any]:
    return {
        "server": one.server.id,
        "ok": one.ok,
        "enabled": not one.skipped,
        "cause": one.cause,
        "hint": one.hint,
        "stderr": one.stderr,
        "steps": [
            {
                "name": step.name,
                "seconds": None if step.seconds is None else round(step.seconds, 6),
                "refusal": step.refusal,
                "detail": step.detail,
            }
            for step in one.steps
        ],
    }
