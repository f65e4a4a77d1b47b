"""``toolyard status``, ``stop`` and ``open``: the Toolyard that local clients share in the background."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from typing import Any

import click

from toolyard.background.link import BackgroundLink, NotAttached, read_line
from toolyard.background.runtime_dir import LOG_FILE_NAME, RuntimeDirError
from toolyard.cli.invocation import Command, Options, Usage
from toolyard.cli.output.console import Column, format_count, print_json, show_table
from toolyard.cli.output.servers import describe_process
from toolyard.errors import Unreachable
from toolyard.types.server import ServerProcess

__all__ = ["commands"]

_ANSWER_TIMEOUT_SECONDS = 60.0
_STOP_TIMEOUT_SECONDS = 15.0


@click.command("status", cls=Command)
@click.pass_obj
def _status(options: Options) -> int:
    """Show the Toolyard that runs in the background for this data directory: its clients and its servers.

    Exits with 3 if none runs.
    """
    answer = _ask(options, "status")
    if answer is None:
        log_file = options.resolved_data_dir / LOG_FILE_NAME
        if options.json:
            print_json({"running": False, "log": str(log_file)})
        else:
            print("No Toolyard is running in the background. `toolyard stdio` starts one when needed.")
            if log_file.exists():
                print(f"Log of the last one: {log_file}")
        return Unreachable.exit_code
    status = json.loads(answer)
    if options.json:
        print_json({"running": True, **status})
    else:
        _show_status(status)
    return 0


def _show_status(status: dict[str, Any]) -> None:
    since = _format_time(status["started_at"])
    mode = "in the background" if status["background"] else "as `toolyard serve`"
    print(f"Toolyard {status['version']} has been running {mode} since {since} (process {status['pid']}).")
    print(f"Data directory: {status['data_dir']}")
    clients = status["clients"]
    print(f"\n{format_count(len(clients), 'client')}")
    if clients:
        columns = [Column("process", align_right=True), Column("since"), Column("options"), Column("folder")]
        rows = [
            (
                str(each["pid"]),
                _format_time(each["since"]),
                " ".join(f"--{name} {value}" for name, value in each["options"].items()) or "-",
                each["cwd"],
            )
            for each in clients
        ]
        show_table(columns, rows)
    for view in status["views"]:
        print(f"\n{view['config'] or 'No configuration file'}: {format_count(view['clients'], 'client')}")
        if view["problem"]:
            print(f"The last change was not applied: {view['problem']}")
        columns = [Column("server"), Column("state"), Column("process", align_right=True)]
        show_table(
            columns, [(each["id"], each["state"], str(each["pid"] or "-")) for each in view["servers"]]
        )
    # A process may belong to several views.
    processes = dict.fromkeys(
        describe_process(server["id"], ServerProcess(**process))
        for view in status["views"]
        for server in view["servers"]
        for process in server["processes"]
    )
    if processes:
        print("", *processes, sep="\n")
    if not status["background"]:
        print("\n`toolyard --remote URL servers` shows all servers of `toolyard serve`.")


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


@click.command("stop", cls=Command)
@click.pass_obj
def _stop(options: Options) -> int:
    """Stop the Toolyard that runs in the background, and the servers that it started.

    Running calls have five seconds to end. Attached clients stay: the next thing that one of them asks for
    starts it again.
    """
    answer = _ask(options, "status")
    if answer is None:
        print("No Toolyard is running in the background.")
        return 0
    status = json.loads(answer)
    pid = status["pid"]
    if not status["background"]:
        hint = f"end it where it was started, or with `kill {pid}`"
        raise Usage(f"the clients of this data directory are served by `toolyard serve` ({pid})", hint=hint)
    _ask(options, "stop")
    deadline = time.monotonic() + _STOP_TIMEOUT_SECONDS
    while _is_running(pid):
        if time.monotonic() > deadline:
            hint = f"end it with `kill -9 {pid}`"
            raise Unreachable(f"the background process {pid} did not end", hint=hint)
        time.sleep(0.02)
    print("Stopped.")
    return 0


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    try:
        # A process that has ended stays until its parent looks. That of a container may never do so.
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return True


@click.command("open", cls=Command)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.pass_obj
def _open(options: Options, no_browser: bool) -> int:
    """Open the pages of the Toolyard in the background in your browser. It is started where none runs.

    The pages are on this machine only. They end with the background process.
    """
    from toolyard.cli.terminal_sign_in import open_browser  # slow to load

    answer = (_ask(options, "open", start=True) or b"").decode()
    word, _, text = answer.partition(" ")
    if word != "ok":
        raise Unreachable(text or "the background process ended", hint="see `toolyard status`")
    print(text)
    if not no_browser:
        open_browser(text)
    return 0


def _ask(options: Options, command: str, *, start: bool = False) -> bytes | None:
    """Return the answer of the background process, or None if none runs. Raises Unreachable."""
    try:
        connection = BackgroundLink(str(options.resolved_data_dir), {}).connect(start=start)
    except NotAttached as reason:
        if reason.is_absent:
            return None
        raise Unreachable(str(reason)) from None
    except (RuntimeDirError, OSError) as error:
        raise Unreachable(f"the background process cannot be reached: {error}") from None
    try:
        connection.settimeout(_ANSWER_TIMEOUT_SECONDS)
        connection.sendall(command.encode() + b"\n")
        return read_line(connection) or None
    except OSError as error:
        raise Unreachable(f"the background process is not responding: {error}") from None
    finally:
        connection.close()


commands = {"status": _status, "stop": _stop, "open": _open}
