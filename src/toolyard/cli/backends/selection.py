"""Choice of the Toolyard that a command works on, and the other end of the choice in the background."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolyard.cli.invocation import Options, open_offline_yard, open_yard

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

    from toolyard.background.shared_cores import SharedCore
    from toolyard.cli.backends.backend import Backend

__all__ = ["open_backend", "serve_operation"]


@asynccontextmanager
async def open_backend(options: Options, *, offline: bool = False) -> AsyncGenerator[Backend]:
    """Open the remote Toolyard of the options, else the one in the background, else one in this process.

    ``offline``: only stored data is needed, so this process reads it without connecting to servers.
    """
    if options.remote is not None:
        from toolyard.cli.backends.remote import RemoteBackend  # only for --remote
        from toolyard.cli.backends.remote_client import RemoteClient

        async with RemoteClient.from_options(options) as client:
            yield RemoteBackend(client)
        return
    if offline:
        async with _open_local(options, offline=True) as backend:
            yield backend
        return
    from toolyard.cli.backends.background import open_background  # loads the event loop

    async with open_background(options, lambda: _open_local(options)) as background:
        if background is not None:
            yield background
            return
    async with _open_local(options) as backend:
        yield backend


@asynccontextmanager
async def _open_local(options: Options, *, offline: bool = False) -> AsyncGenerator[Backend]:
    from toolyard.cli.backends.local import LocalBackend  # slow to load, as the whole core is

    folder = options.resolved_data_dir
    if offline:
        opening = open_offline_yard(options.load_config(), options.load_settings(), folder)
    else:
        opening = open_yard(options)
    async with opening as yard:
        yield LocalBackend(yard, folder)


async def serve_operation(shared_core: SharedCore, reader: StreamReader, writer: StreamWriter) -> None:
    """Carry out the operation of a command, in the background process."""
    from toolyard.cli.backends import background_handler  # only once a command needs it

    await background_handler.serve_operation(shared_core, reader, writer)
