"""``toolyard doctor``: find out why a server does not work."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.database import open_existing_database
from toolyard.cli.input.completion import complete_servers
from toolyard.cli.invocation import Command, Options, Usage, report_error, run_async, unknown_server_error
from toolyard.cli.output import console
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.errors import ConfigError, ToolyardError, Unreachable
from toolyard.types.server import Configuration, HttpSpec, Server

if TYPE_CHECKING:
    from toolyard.auth import AuthProvider
    from toolyard.cli.doctor_checks import ConnectionStep, MachineCheck, ServerCheck

__all__ = ["command"]


@click.command("doctor", cls=Command)
@click.argument("servers", metavar="[SERVER]...", nargs=-1, shell_complete=complete_servers)
@click.pass_obj
def command(options: Options, servers: tuple[str, ...]) -> int:
    """Check this machine, then start each enabled server step by step, with times, and suggest a remedy for
    each failure. With SERVER, only those servers.

    Exits with 3 when a server does not work, with 2 when the configuration cannot be read.
    """
    return run_async(_run_doctor(options, servers))


async def _run_doctor(options: Options, server_ids: tuple[str, ...]) -> int:
    from toolyard.cli.doctor_checks import check_machine  # slow to load, and not for the help

    facts = [*await check_machine(options.resolved_data_dir), *await _check_shared_database(options)]
    if not options.json:
        _show_machine_checks(facts)
    machine = [asdict(fact) for fact in facts]
    try:
        configuration = options.load_config()
        chosen = _select_servers(configuration, server_ids)
    except (ConfigError, Usage) as error:
        return report_error(error, options, environment=machine)
    examined = await _check_servers(chosen, options)
    broken = [one for one in examined if not one.is_ok and not one.is_skipped]
    if options.json:
        console.print_json(
            {
                "environment": machine,
                "configuration": configuration.file,
                "servers": [_server_check_json(one) for one in examined],
            }
        )
    else:
        _show_summary(configuration, examined, broken)
    return Unreachable.exit_code if broken else 0


async def _check_shared_database(options: Options) -> list[MachineCheck]:
    """Check that the configured PostgreSQL database can be used, if there is one."""
    from toolyard.cli.doctor_checks import MachineCheck  # loaded with the machine's part

    try:
        if options.load_settings().database_url is None:
            return []
        async with open_existing_database(options):
            return [MachineCheck("database", "PostgreSQL, can be used")]
    except ConfigError:
        return []  # reported with the servers, which need the settings too
    except ToolyardError as error:
        return [MachineCheck("database", error.cause, False, error.hint)]


def _select_servers(configuration: Configuration, server_ids: Sequence[str]) -> list[Server]:
    servers = configuration.servers
    for server_id in server_ids:
        if server_id not in servers:
            raise unknown_server_error(server_id, servers)
    return [server for server in servers.values() if not server_ids or server.id in server_ids]


async def _check_servers(servers: list[Server], options: Options) -> list[ServerCheck]:
    """Check the servers in sequence: in parallel they would distort each other's times."""
    from toolyard.cli.doctor_checks import check_server  # loaded with the machine's part

    examined: list[ServerCheck] = []
    async with _open_stored_sign_ins(options) as auth_for:
        for server in servers:
            async with ProgressIndicator(f"starting {server.id}", quiet=options.json):
                one = await check_server(server, auth_for(server))
            examined.append(one)
            if not options.json:
                _show_server_check(one)
    return examined


@asynccontextmanager
async def _open_stored_sign_ins(options: Options) -> AsyncGenerator[Callable[[Server], AuthProvider | None]]:
    """Open the sign-ins of `toolyard login`."""
    from toolyard.core.composition import auth_providers_from_database
    from toolyard.net import OutboundHttp
    from toolyard.store.lazy_database import LazyDatabase
    from toolyard.types.account import LOCAL_PRINCIPAL  # loaded with the machine's part

    settings, net = options.load_settings(), OutboundHttp()
    database = LazyDatabase(settings, options.resolved_data_dir)
    auth_for = auth_providers_from_database(database, net)
    try:
        yield (
            lambda server: (
                auth_for(server, LOCAL_PRINCIPAL) if isinstance(server.transport, HttpSpec) else None
            )
        )
    finally:
        await net.close()
        await database.close()


def _show_machine_checks(machine_checks: Sequence[MachineCheck]) -> None:
    for fact in machine_checks:
        colour = {True: "green", False: "red", None: "dim"}[fact.ok]
        mark = console.style_text({True: "ok", False: "no", None: "--"}[fact.ok], colour, sys.stdout)
        print(f"{mark}  {fact.name:<15} {console.one_line(fact.text)}")
        if fact.hint:
            console.show_message("hint", fact.hint, None, sys.stdout)


def _show_server_check(server_check: ServerCheck) -> None:
    state = console.style_text("off", "dim", sys.stdout) if server_check.is_skipped else ""
    print(
        (
            f"\n{console.style_text(console.one_line(server_check.server.id), 'cyan', sys.stdout)}  "
            f"{_describe_transport(server_check.server)}  {state}"
        ).rstrip()
    )
    for step in server_check.steps:
        _show_step(step)
    if server_check.is_skipped:
        print(f"  {console.style_text('--', 'dim', sys.stdout)}  {server_check.cause}")
    elif server_check.cause is not None and all(step.seconds is not None for step in server_check.steps):
        print(f"  {console.style_text('no', 'red', sys.stdout)}  {server_check.cause}")
    for line in server_check.stderr:
        print(f"      {console.style_text(f'stderr: {line}', 'dim', sys.stdout)}")
    if server_check.hint:
        console.show_message("hint", server_check.hint, None, sys.stdout)


def _show_step(step: ConnectionStep) -> None:
    ended_well = step.seconds is not None
    text, colour = ("ok", "green") if ended_well else ("no", "red")
    mark = console.style_text(text, colour, sys.stdout)
    took = console.format_duration(step.seconds) if step.seconds is not None else "-"
    said = f"answered '{console.one_line(step.refusal, 60)}'; " if step.refusal else ""
    print(f"  {mark}  {step.name:<16} {took:>8}  {said}{console.one_line(step.detail)}".rstrip())


def _describe_transport(server: Server) -> str:
    from toolyard.config.value_checks import mask_url_secrets  # not for the help

    spec = server.transport
    if isinstance(spec, HttpSpec):
        return f"{spec.type} {mask_url_secrets(spec.url)}"
    return f"stdio {console.one_line(spec.command)}"


def _show_summary(
    configuration: Configuration, server_checks: list[ServerCheck], broken: list[ServerCheck]
) -> None:
    tried = [one for one in server_checks if not one.is_skipped]
    print(f"\nconfiguration: {configuration.file or 'no file'}")
    if broken:
        failed = f"{len(broken)} of {console.format_count(len(tried), 'server')} failed"
        print(
            f"{console.style_text(failed, 'red', sys.stdout)}: {', '.join(one.server.id for one in broken)}"
        )
    else:
        verb = "works" if len(tried) == 1 else "work"
        print(console.style_text(f"{console.format_count(len(tried), 'server')} {verb}", "green", sys.stdout))


def _server_check_json(server_check: ServerCheck) -> dict[str, Any]:
    return {
        "server": server_check.server.id,
        "ok": server_check.is_ok,
        "enabled": not server_check.is_skipped,
        "cause": server_check.cause,
        "hint": server_check.hint,
        "stderr": server_check.stderr,
        "steps": [
            {
                "name": step.name,
                "seconds": None if step.seconds is None else round(step.seconds, 6),
                "refusal": step.refusal,
                "detail": step.detail,
            }
            for step in server_check.steps
        ],
    }
