"""``toolyard add``: add a server to the configuration file, and check it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click

from toolyard.cli.commands.setup.catalog import find_known_server
from toolyard.cli.commands.setup.config_file import choose_target, save_plan, target_options
from toolyard.cli.invocation import Command, Options, Usage, run_async
from toolyard.cli.output import console
from toolyard.config.entries.identifiers import id_fault, sanitize_id
from toolyard.config.file_edits.entry_edits import EntryEdit
from toolyard.config.file_io import MAX_CONFIG_BYTES
from toolyard.config.importers.formats import read_pasted_servers
from toolyard.config.secret_replacement import VariableEntry, replace_secrets
from toolyard.config.server_entry_edits import ConfigTarget, plan_server_edits, read_entries
from toolyard.config.sources.json_document import JsonValue
from toolyard.types.server import URL_TRANSPORT_LABELS, Server, State, StdioSpec

__all__ = ["command"]

_PACKAGE_RUNNERS = ("npx", "uvx")
FIRST_START_SECONDS = 300.0
"""Connect timeout of the first check: npx and uvx download a package before they start it."""


@dataclass(frozen=True, slots=True)
class NewServer:
    """A server to add, and notes about its entry."""

    id: str
    entry: dict[str, JsonValue]
    notes: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Values of variables of the entry, which are not written."""
    missing_variables: tuple[str, ...] = ()


class _AddCommand(Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            # Options of the server's command look like ours, unless they come after two dashes.
            if error.possibilities or "--" in args:
                raise
            hint = f"put -- before the command of a server: `{ctx.command_path} NAME -- COMMAND ARGS...`"
            raise Usage(f"no such option '{console.one_line(error.option_name)}'", hint=hint) from None


@click.command("add", cls=_AddCommand)
@click.argument("words", metavar="[NAME] [URL | JSON | -- COMMAND ARGS...]", nargs=-1)
@click.option(
    "--set",
    "values",
    metavar="NAME=VALUE",
    multiple=True,
    help="With a known server: one of its values. May be repeated.",
)
@click.option(
    "--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="Send this header. May be repeated."
)
@click.option(
    "--env", "variables", metavar="NAME=VALUE", multiple=True, help="Set this variable. May be repeated."
)
@click.option("--transport", type=click.Choice([*URL_TRANSPORT_LABELS]), help="With a URL: its transport.")
@click.option("--replace", "replaces", is_flag=True, help="Replace a server with the same name.")
@click.option("--literal", is_flag=True, help="Write secrets into the file instead of ${VARIABLES}.")
@click.option("--no-check", is_flag=True, help="Do not connect to the server.")
@target_options
@click.pass_obj
def command(
    options: Options,
    words: tuple[str, ...],
    values: tuple[str, ...],
    headers: tuple[str, ...],
    variables: tuple[str, ...],
    transport: str | None,
    replaces: bool,
    literal: bool,
    no_check: bool,
    to: str | None,
    project: bool,
) -> int:
    """Add a server: a known one by its name (`toolyard add github`, see `toolyard catalog list`), a command
    (`toolyard add files -- npx -y @modelcontextprotocol/server-filesystem .`), an address
    (`toolyard add docs https://docs.example/mcp`), or an entry that another program shows as JSON, as an
    argument or on standard input.

    Secrets in headers, variables, addresses and arguments are written as ${VARIABLES}. The server is started
    or asked once, and you sign in if it requires it. The rest of the file stays as it is, and a backup is
    made.
    """
    extra = _read_extra_keys(headers, variables, transport)
    if len(words) == 1 and _is_name(words[0]):
        found = [_read_known_server(options, words[0], values, literal)]
    elif values:
        raise Usage("--set works only with servers from the catalogue", hint="see `toolyard catalog list`")
    else:
        found = _read_servers(words)
    servers = [_with_extra_keys(server, extra) for server in found]
    target = choose_target(options, to, project)
    existing = read_entries(target.path)
    taken = [server.id for server in servers if server.id in existing]
    if taken and not replaces:
        names = ", ".join(f"'{console.one_line(name)}'" for name in taken)
        raise Usage(f"{target.path} already has {names}", hint="use another name, or --replace")
    stored = {server.id: replace_secrets(server.id, server.entry, os.environ) for server in servers}
    has_secrets = literal and any(entry.variables for entry in stored.values())
    if literal:
        stored = {server.id: VariableEntry(server.entry) for server in servers}
    edits = [
        EntryEdit(existing[name].path if name in existing else ("mcpServers", name), entry.value)
        for name, entry in stored.items()
    ]
    plan = plan_server_edits(target.path, edits)
    names = ", ".join(f"'{console.one_line(server.id)}'" for server in servers)
    secrets = {name: value for entry in stored.values() for name, value in entry.variables.items()}
    for server in servers:
        secrets.update(server.secrets)
    facts = save_plan(options, target, plan, f"added {names}", private=has_secrets)
    for server in servers:
        for note in server.notes:
            console.show_note(f"{server.id}: {note}")
    _show_variables(secrets)
    # The check of this process uses the values that were given; they are not written anywhere.
    os.environ.update(secrets)
    states = {name: None if no_check else _check(options, target, name) for name in stored}
    if options.json:
        missing = [name for server in servers for name in server.missing_variables]
        console.print_json({**facts, "servers": states, "variables": [*secrets, *missing]})
    return 0


def _read_servers(words: tuple[str, ...]) -> list[NewServer]:
    """Return the servers that the arguments describe. Raises Usage or ConfigError."""
    if not words:
        return _read_pasted(_read_standard_input())
    name, *rest = words
    if not _is_name(name):
        if rest:
            raise Usage("the name comes before the entry", hint="write `toolyard add NAME JSON`")
        return _read_pasted(_read_standard_input() if name == "-" else name)
    fault = id_fault(name)
    if fault is not None:
        raise Usage(f"'{console.one_line(name)}': {fault}", hint="choose another name")
    first = rest[0]
    if len(rest) == 1 and (first == "-" or first.lstrip().startswith("{")):
        return _read_pasted(_read_standard_input() if first == "-" else first, name)
    if first.startswith(("http://", "https://")):
        if len(rest) > 1:
            raise Usage("a URL takes no further arguments", hint="put options before it")
        return [NewServer(name, {"url": first})]
    args: dict[str, JsonValue] = {"args": list(rest[1:])} if rest[1:] else {}
    return [NewServer(name, {"command": first, **args})]


def _is_name(word: str) -> bool:
    return word != "-" and not word.lstrip().startswith(("{", '"'))


def _read_known_server(options: Options, name: str, values: Sequence[str], literal: bool) -> NewServer:
    """Return a server of the catalogue, with the given values; others are asked for at a terminal."""
    server = find_known_server(options, name)
    given = _split_pairs(values, "=", "--set", "write it like NAME=value")
    unknown = [value for value in given if value not in {one.name for one in server.variables}]
    if unknown:
        names = ", ".join(one.name for one in server.variables) or "none"
        raise Usage(
            f"'{console.one_line(name)}' has no value '{console.one_line(unknown[0])}'",
            hint=f"known values: {names}",
        )
    texts = {key: str(value) for key, value in given.items()}
    for one in server.variables:
        if one.secret or one.name in texts:
            continue
        if options.json or not console.is_interactive():
            hint = f"write `toolyard add {console.one_line(name)} --set {one.name}=VALUE`"
            raise Usage(
                f"'{console.one_line(name)}' needs {one.name}: {console.one_line(one.purpose)}", hint=hint
            )
        texts[one.name] = click.prompt(f"{one.name} ({console.one_line(one.purpose)})", err=True)
    secrets = {one.name: texts[one.name] for one in server.variables if one.secret and one.name in texts}
    plain = {key: _expand_path(value) for key, value in texts.items() if literal or key not in secrets}
    missing = [one for one in server.variables if one.secret and not (texts | os.environ).get(one.name)]
    notes = [f"set {one.name} wherever Toolyard runs: {console.one_line(one.purpose)}" for one in missing]
    if server.check_method is None:
        notes.append("a public registry describes this server; Toolyard has not checked it")
    entry = server.fill_entry(plain)
    names = tuple(one.name for one in missing)
    return NewServer(sanitize_id(name), entry, tuple(notes), {} if literal else secrets, names)


def _expand_path(value: str) -> str:
    """Return the absolute path of a file or folder that exists: servers run in another folder."""
    path = os.path.abspath(os.path.expanduser(value))
    return path if os.path.exists(path) else value


def _read_pasted(text: str, name: str | None = None) -> list[NewServer]:
    found = read_pasted_servers(text, name)
    if name is not None and len(found) == 1:
        return [NewServer(name, found[0].entry, found[0].notes)]
    if name is not None:
        raise Usage("the pasted text has several servers", hint="omit the name")
    return [NewServer(sanitize_id(server.name), server.entry, server.notes) for server in found]


def _read_standard_input() -> str:
    if console.is_interactive():
        print("Paste the entry, then press Ctrl-D:", file=sys.stderr)
    text = sys.stdin.read(MAX_CONFIG_BYTES)
    if not text.strip():
        raise Usage("nothing was given to add", hint="write `toolyard add NAME -- COMMAND`, or add NAME URL")
    return text


def _read_extra_keys(
    headers: Sequence[str], variables: Sequence[str], transport: str | None
) -> dict[str, JsonValue]:
    extra: dict[str, JsonValue] = {} if transport is None else {"type": transport}
    if headers:
        extra["headers"] = _split_pairs(headers, ":", "--header", "write it like 'X-Key: value'")
    if variables:
        extra["env"] = _split_pairs(variables, "=", "--env", "write it like NAME=value")
    return extra


def _split_pairs(texts: Sequence[str], separator: str, option: str, hint: str) -> dict[str, JsonValue]:
    pairs: dict[str, JsonValue] = {}
    for text in texts:
        name, found, value = text.partition(separator)
        if not found or not name.strip():
            # The text may be a secret, and is not shown.
            raise Usage(f"{option} needs a name and a value", hint=hint)
        pairs[name.strip()] = value.strip() if option == "--header" else value
    return pairs


def _with_extra_keys(server: NewServer, extra: Mapping[str, JsonValue]) -> NewServer:
    is_remote = "url" in server.entry
    wrong = [key for key in extra if is_remote is (key == "env")]
    if wrong:
        word = {"env": "--env", "headers": "--header", "type": "--transport"}[wrong[0]]
        raise Usage(f"{word} does not apply to a {'URL' if is_remote else 'command'}")
    entry = dict(server.entry)
    for key, value in extra.items():
        current = entry.get(key)
        if isinstance(current, dict) and isinstance(value, dict):
            value = {**current, **value}
        entry[key] = value
    return replace(server, entry=entry)


def _show_variables(secrets: Mapping[str, str]) -> None:
    for name, value in secrets.items():
        if os.environ.get(name) == value:
            console.show_note(f"a secret is read from the variable {name}, and is not in the file")
        else:
            console.show_note(
                f"a secret is stored as ${{{name}}}, and its value was not written",
                f"set {name} wherever Toolyard runs, e.g. in the profile of your shell, or use --literal",
            )


def _check(options: Options, target: ConfigTarget, name: str) -> dict[str, Any]:
    """Connect to a new server once, sign in if it requires it, and report its state."""
    from toolyard.cli.commands.login import (  # slow to load, as the whole core is
        DEFAULT_TIMEOUT_SECONDS,
        check_server,
        sign_in,
    )
    from toolyard.cli.terminal_sign_in import find_sign_in_server

    located = replace(options, config=str(target.path))
    configuration = located.load_config()
    server = configuration.servers[name]
    if not server.enabled:
        reason = server.disabled_reason or "it is turned off in its entry"
        console.show_note(f"'{name}' is not started: {reason}")
        return {"state": State.DISABLED.value, "tools": None, "cause": reason, "hint": None}
    patient = replace(server.timeouts, connect=max(server.timeouts.connect, FIRST_START_SECONDS))
    servers = {**configuration.servers, name: replace(server, timeouts=patient)}
    state, tools, failure = run_async(check_server(located, name, replace(configuration, servers=servers)))
    cause, hint = (None, None) if failure is None else (failure.cause, failure.hint)
    hint = hint or (_build_package_hint(server) if state is State.FAILED else None)
    if state is State.READY and not options.json:
        count = "" if tools is None else f": {console.format_count(tools, 'tool')}"
        print(
            f"'{console.one_line(name)}' {console.style_text('works', 'green', sys.stdout)}{count}",
            flush=True,
        )
    elif state is State.NEEDS_AUTH and console.is_interactive() and not options.json:
        chosen = find_sign_in_server(configuration, name)
        run_async(
            sign_in(located, chosen, paste=False, browser=True, timeout_seconds=DEFAULT_TIMEOUT_SECONDS)
        )
    elif failure is not None:
        console.show_note(f"'{name}' does not work yet: {console.one_line(failure.cause)}", hint)
    return {"state": state.value, "tools": tools, "cause": cause, "hint": hint}


def _build_package_hint(server: Server) -> str | None:
    """Return a hint for a server whose program is a package that is downloaded at its first start."""
    spec = server.transport
    if not isinstance(spec, StdioSpec) or os.path.basename(spec.command) not in _PACKAGE_RUNNERS:
        return None
    package = next((word for word in spec.args if not word.startswith("-")), "")
    return (
        f"check that the package '{console.one_line(package)}' exists, and that this machine can download it"
    )
