"""``toolyard connect``: show the entry with which a client uses the gateway, or write it to its file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from toolyard.cli.invocation import Command, Options, Usage, explain_write_error
from toolyard.cli.output.console import print_json, print_written_file, show_note
from toolyard.config.file_edits.client_records import (
    plan_undo,
    read_client_records,
    write_client_edits,
    write_undo,
)
from toolyard.config.file_edits.entry_edits import EntryEdit, plan_edits, resolve_entry_path
from toolyard.config.importers.locations import find_target_file, project_client_files, user_client_files

if TYPE_CHECKING:
    from toolyard.gateway.client_snippets import ConnectionMethod, Snippet

__all__ = ["command", "update_client_file"]


_CLIENT_NAMES = (
    *("claude-code", "claude-desktop", "cline", "codex", "copilot", "cursor", "gemini", "opencode", "qwen"),
    *("vscode", "windsurf", "zed"),
)


@click.command("connect", cls=Command)
@click.argument("client", type=click.Choice(_CLIENT_NAMES), required=False)
@click.option("--all", "is_all", is_flag=True, help="Write it for every client found on this machine.")
@click.option("--replace", "replaces", is_flag=True, help="With --all: move the clients' own servers here.")
@click.option("--yes", is_flag=True, help="With --all: write without asking.")
@click.option("--write", is_flag=True, help="Write it to the client's configuration file.")
@click.option("--remove", is_flag=True, help="Remove it from the client's file.")
@click.option("--project", is_flag=True, help="Use the project's file in this folder, not your own.")
@click.option("--to", metavar="PATH", help="Use another file of the client.")
@click.option("--url", metavar="URL", help="The address of a running Toolyard. Default: `toolyard stdio`.")
@click.option("--token", is_flag=True, help="With --url: send a token.")
@click.option("--token-file", metavar="PATH", help="The file with the token to write.")
@click.option("--agent", metavar="NAME", help="Only the tools of this agent.")
@click.option("--bundle", metavar="NAME", help="Only the tools of this bundle.")
@click.option("--server", metavar="ID", help="Only this server, with its own tool names.")
@click.pass_obj
def command(
    options: Options,
    client: str | None,
    is_all: bool,
    replaces: bool,
    yes: bool,
    write: bool,
    remove: bool,
    project: bool,
    to: str | None,
    url: str | None,
    token: bool,
    token_file: str | None,
    agent: str | None,
    bundle: str | None,
    server: str | None,
) -> int:
    """Show the entry with which a client uses all your servers through Toolyard.

    --write adds it to the client's file: comments and layout are kept, the previous file is kept as a backup,
    and writing it again changes nothing. The token comes from --token-file or from TOOLYARD_REMOTE_TOKEN.

    --all does so for every client found on this machine, after one preview and confirmation. With --replace,
    their own servers are imported first and turned off there, so that nothing runs twice. `toolyard
    disconnect` undoes all of it.
    """
    from toolyard.gateway.client_snippets import (  # not for the help
        ConnectionMethod,
        build_snippet,
        find_program,
        gateway_url,
    )

    chosen = {"agent": agent, "bundle": bundle, "server": server}
    given = {name: value for name, value in chosen.items() if value is not None}
    is_single = remove or project or to is not None
    _check_client(client, is_all=is_all, is_single=is_single, replaces=replaces or yes)
    write = write or is_all
    _check_options(
        given, write=write, remove=remove, project=project, to=to, url=url, token=token or token_file
    )
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    if client == "claude-code" and url is None and not remove and (project or not write):
        # The entry is shown for the project's file as well.
        options = _with_explicit_config(options)
    way = ConnectionMethod(
        (*(find_program() if write else ("toolyard",)), *_build_location_options(options), "stdio", *words),
        None if url is None else gateway_url(url, **given),
        (token or token_file is not None) and url is not None,
    )
    if write and way.needs_token:
        way = _with_token(way, token_file)
    if client is None:
        from toolyard.cli.commands.setup.clients import connect_all

        return connect_all(options, way, replaces=replaces, yes=yes)
    try:
        made = build_snippet(client, ConnectionMethod() if remove else way)
        shown = build_snippet(client, ConnectionMethod() if remove else replace(way, token=None))
    except ValueError as error:
        raise Usage(str(error), hint="omit --url, so that the client starts `toolyard stdio`") from None
    if not write and not remove:
        _show_snippet(options, shown)
        return 0
    from toolyard.config.file_edits.text_edits import EditRefused

    try:
        update_client_file(
            options, made, project=project, to=to, remove=remove, private=way.token is not None
        )
    except EditRefused:
        if write and not options.json:
            _show_snippet(options, shown)
        raise
    return 0


def _check_client(client: str | None, *, is_all: bool, is_single: bool, replaces: bool) -> None:
    known, add_all = f"known clients: {', '.join(_CLIENT_NAMES)}", "add --all instead of the client"
    _refuse_first(
        (is_all is (client is not None), "name a client, or use --all", known),
        (is_all and is_single, "--remove, --project and --to cannot be combined with --all", "omit them"),
        (replaces and not is_all, "--replace and --yes only apply to --all", add_all),
    )


def _check_options(
    scope_options: dict[str, str],
    *,
    write: bool,
    remove: bool,
    project: bool,
    to: str | None,
    url: str | None,
    token: str | bool | None,
) -> None:
    has_file, is_shown = project or to is not None, not (write or remove)
    one_of, add_write = "use only one of them", "add --write or --remove"
    add_url, url_example = "add --url with the address of Toolyard", "write it like http://127.0.0.1:8420"
    _refuse_first(
        (len(scope_options) > 1, "--agent, --bundle and --server cannot be combined", one_of),
        (write and remove, "--write and --remove cannot be combined", one_of),
        (has_file and is_shown, "--project and --to only apply to writing", add_write),
        (project and to is not None, "--project and --to cannot be combined", one_of),
        (bool(token) and url is None, "--token requires --url", add_url),
        (url is not None and not _is_web_url(url), f"--url {url}: not a valid web address", url_example),
    )


def _refuse_first(*faults: tuple[bool, str, str]) -> None:
    """Raise Usage for the first fault that is there, with its message and hint."""
    for is_there, message, hint in faults:
        if is_there:
            raise Usage(message, hint=hint)


def _is_web_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and "?" not in url
    except ValueError:
        return False


def _build_location_options(options: Options) -> list[str]:
    """Return the options that locate this Toolyard's files, since the client has another folder and
    environment."""
    folder = options.data_dir or os.environ.get("TOOLYARD_DATA_DIR")
    found = {"--data-dir": folder, "--config": options.config}
    return [
        word
        for name, path in found.items()
        if path
        for word in (name, os.path.abspath(os.path.expanduser(path)))
    ]


def _with_explicit_config(options: Options) -> Options:
    """Name a configuration file explicitly where Toolyard would otherwise find `.mcp.json`, the file that
    starts it."""
    from toolyard.config import discover_config_path  # not for the help

    found = discover_config_path()
    if options.config is not None or (found is not None and found.name != ".mcp.json"):
        return options
    file = options.resolved_data_dir / "mcp.json"
    if not file.exists():
        show_note(
            f"{file} does not exist yet",
            hint="add your servers to it: the client starts Toolyard with this file only",
        )
    return replace(options, config=str(file))


def _with_token(method: ConnectionMethod, file: str | None) -> ConnectionMethod:
    from toolyard.cli.backends.remote_client import REMOTE_TOKEN_VARIABLE, read_token  # only to write a token

    token = read_token(file)
    if token is None:
        hint = f"set {REMOTE_TOKEN_VARIABLE}, or pass a file with --token-file"
        raise Usage("no token was given", hint=hint)
    return replace(method, token=token)


def _show_snippet(options: Options, snippet: Snippet) -> None:
    if options.json:
        print_json(
            {"client": snippet.client, "file": snippet.file, "text": snippet.text, "command": snippet.command}
        )
    elif snippet.command is not None:
        print(f"Run:\n\n{snippet.command}\n\nor add this to {snippet.file}:\n\n{snippet.text}")
    else:
        print(f"Add this to {snippet.file}:\n\n{snippet.text}")


def update_client_file(
    options: Options, snippet: Snippet, *, project: bool, to: str | None, remove: bool, private: bool
) -> None:
    """Add the snippet's entry to the client's file, or remove it, and report the change.

    ``private``: the entry contains a token. Raises EditRefused if the file cannot be changed without loss,
    ConfigError if it cannot be read, and Usage if it cannot be written.
    """
    file = _find_client_file(snippet, project=project, to=to)
    path, folder = resolve_entry_path(file, snippet.path), options.resolved_data_dir
    edits = [EntryEdit(path, dict(snippet.entry))]
    undo = plan_undo(file, path, read_client_records(folder).get(str(file))) if remove else None
    plan = plan_edits(file, edits) if undo is None else undo.plan
    backup = None
    if plan.has_changes:
        with explain_write_error(plan.file):
            if undo is not None:
                backup = write_undo(undo, folder)
            else:
                backup = write_client_edits(snippet.client, plan, edits, folder, private=private)
    if options.json:
        kept = None if backup is None else str(backup)
        print_json({"client": snippet.client, "file": str(plan.file), "change": plan.change, "backup": kept})
        return
    _print_outcome(snippet, plan.change.value, plan.file, backup)
    if private and project:
        show_note(f"{plan.file} contains a token", "do not share or commit this file")


def _find_client_file(snippet: Snippet, *, project: bool, to: str | None) -> Path:
    if to is not None:
        return Path(os.path.abspath(to))
    places = project_client_files(Path.cwd()) if project else user_client_files(Path.home(), env=os.environ)
    file = find_target_file(snippet.title, places)
    if file is None:
        raise Usage(f"{snippet.title} has no project file", hint="omit --project")
    return file


def _print_outcome(snippet: Snippet, change: str, file: Path, backup: Path | None) -> None:
    words = {
        "added": f"{snippet.title} uses Toolyard",
        "replaced": f"{snippet.title} uses Toolyard with the new settings",
        "removed": f"{snippet.title} no longer uses Toolyard",
        "same": f"nothing to do: {file} is up to date",
        "absent": f"nothing to do: {file} has no entry for Toolyard",
    }
    if change in ("same", "absent"):
        print(words[change])
        return
    print_written_file(file, backup)
    print(f"{words[change]} after it is restarted")
