"""``toolyard approve``: review a discovered configuration file and trust it."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict

import click

from toolyard.cli.database import record_if_database_exists
from toolyard.cli.input.prompts import ask_yes_no
from toolyard.cli.invocation import Command, Options, Usage, report_error, run_async
from toolyard.cli.output.console import is_interactive, one_line, print_json, show_note, style_text
from toolyard.config import approve_file, discover_config_path, review_file
from toolyard.config.file_review import Review, ReviewedServer

__all__ = ["command"]

_CHANGE_COLOURS = {"new": "green", "changed": "yellow", "same": "dim"}


@click.command("approve", cls=Command)
@click.argument("path", required=False, type=click.Path(path_type=str))
@click.option("--yes", is_flag=True, help="Approve without asking.")
@click.pass_obj
def command(options: Options, path: str | None, yes: bool) -> int:
    """Show what a configuration file would run, with which environment, where it would connect and which
    variables it would read; then store the approval.

    Without PATH: the file found in this folder or above. A file that was found, not named, is used only after
    approval, and again after each change. The approval covers the file, not the programs that it names: code
    of the project can change without a new approval.
    """
    chosen = path or options.config or discover_config_path()
    if chosen is None:
        raise Usage(
            "no configuration file found in this folder or its parents",
            hint="pass its path: `toolyard approve PATH`",
        )
    seen = review_file(chosen, options.resolved_data_dir)
    if not options.json:
        _show_review(seen)
    done = seen.state == "approved"
    if not done:
        if not yes and (options.json or not is_interactive()):
            hint = "--yes approves without asking"
            error = Usage("cannot ask for confirmation here, so nothing was approved", hint=hint)
            return report_error(error, options, review=asdict(seen), approved=False)
        if not yes and not ask_yes_no("Approve this file?"):
            show_note("nothing was approved")
            return 1
        _save_approval(seen, options)
    if options.json:
        print_json({"review": asdict(seen), "approved": True})
    else:
        print("approved already" if done else style_text("approved", "green", sys.stdout))
    return 0


def _save_approval(file_review: Review, options: Options) -> None:
    try:
        approve_file(file_review.path, options.resolved_data_dir, sha256=file_review.sha256)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Usage(f"the approval cannot be written to {options.resolved_data_dir}: {reason}") from None
    details = {"sha256": file_review.sha256, "servers": [server.id for server in file_review.servers][:100]}
    run_async(record_if_database_exists(options, "config.approve", {file_review.path: details}))


def _show_review(file_review: Review) -> None:
    print(f"{one_line(file_review.path)}  {style_text(file_review.state, 'yellow', sys.stdout)}")
    for server in file_review.servers:
        _show_server(server)
    for server_id in file_review.removed:
        print(f"\n{style_text(one_line(server_id), 'cyan', sys.stdout)}  removed since the last approval")
    print(f"\nsha256 {file_review.sha256}")


def _show_server(server: ReviewedServer) -> None:
    state = "" if server.enabled else "  disabled"
    change = style_text(server.change, _CHANGE_COLOURS[server.change], sys.stdout)
    print(f"\n{style_text(one_line(server.id), 'cyan', sys.stdout)}  {change}  {server.trust}{state}")
    if server.problem is not None:
        print(f"  {style_text('error:', 'red', sys.stdout)} {server.problem}")
    lines = {
        "runs": shlex.join(server.command),
        "in": server.cwd or "",
        "connects to": server.address or "",
        "sends headers": ", ".join(server.headers),
        "signs in with": server.key_file or "",
        "reads from you": ", ".join(server.variables),
    }
    for what, text in lines.items():
        if text:
            print(f"  {what:<15} {text}")
    for variable in server.environment:
        print(f"  {'sets':<15} {variable.name}={variable.value}")
    for variable in server.environment:
        if variable.changes_execution:
            _show_warning(f"{variable.name} changes which code is run")
    if server.project_code:
        _show_warning(
            f"it runs code from this project ({', '.join(server.project_code)}), "
            "which can change without a new approval"
        )


def _show_warning(text: str) -> None:
    print(f"  {style_text('warning:', 'yellow', sys.stdout)} {text}")
