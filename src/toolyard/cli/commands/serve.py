"""``toolyard serve``: run the web app until it is stopped."""

from __future__ import annotations

import sys

import click

from toolyard.cli.backends.selection import serve_operation
from toolyard.cli.invocation import Command, Options, report_error, run_async
from toolyard.cli.output.console import format_problem, show_note, show_notices, style_text
from toolyard.cli.output.notices import unapproved_file_notices
from toolyard.errors import ToolyardError

__all__ = ["command"]

_START_FAILED_EXIT_CODE = 2


@click.command("serve", cls=Command)
@click.option("--host", metavar="ADDRESS", help="The address to listen on. Default: the setting host.")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    help="The port to listen on; 0 picks a free one. Default: the setting port.",
)
@click.pass_obj
def command(options: Options, host: str | None, port: int | None) -> int:
    """Run the web app: pages under /ui, the API under /api/v1.

    By default it listens on this machine only and needs no account. SIGTERM or Ctrl-C stops it: open requests
    get a few seconds to end, and every server that it started is stopped. A second signal stops it at once.
    """
    try:
        return _serve_web_app(options, host, port)
    except ToolyardError as error:
        # Errors at start-up are for the operator to correct.
        report_error(error, options)
        return _START_FAILED_EXIT_CODE


def _serve_web_app(options: Options, host: str | None, port: int | None) -> int:
    from toolyard.accounts.startup import check_startup_settings  # not for the help
    from toolyard.web.http_server.socket import open_listener

    folder = options.resolved_data_dir
    settings = options.load_settings(host=host, port=port)
    configuration = options.load_config()
    warnings = check_startup_settings(settings, settings.host)
    listener = open_listener(settings.host, settings.port)

    from toolyard.web.app import ServeOptions, serve
    from toolyard.web.http_server.logs import (
        start_logging,  # slow to load, and by now others can connect and wait
    )

    start_logging(settings.log_level, settings.log_format, verbose=options.verbose)

    def announce(invitation: str | None) -> None:
        address = style_text(f"{listener.address}/", "bold", sys.stdout)
        print(f"Toolyard is listening on {address}")
        if invitation is not None:
            print(f"No admin exists yet. Create one with this link (works once, for a day): {invitation}")
        sys.stdout.flush()
        if invitation is not None and settings.database_url is not None:
            show_note("each replica that starts without an admin prints a link; only the newest one works")
        for warning in warnings:
            show_note(warning)
        show_notices(unapproved_file_notices(configuration))
        for hint in settings.hints:
            show_note(format_problem(hint), hint.hint)

    async def run() -> None:
        from toolyard.background.foreground_server import serve_local_clients  # loads the gateway

        async with serve_local_clients(folder, settings, serve_operation) as local:
            await serve(
                ServeOptions(configuration, settings, folder, options.config),
                listener,
                announce,
                processes=local.processes,
                on_open=local.pages.set_opened,
            )

    run_async(run())
    return 0
