"""Runs coroutines, and opens the library's Toolyard for commands."""

from __future__ import annotations

import gc
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from toolyard.cli.input.options import Options

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from pathlib import Path

    from toolyard.background.shared_cores import SharedCore
    from toolyard.config.settings.table import Settings
    from toolyard.types.server import Configuration
    from toolyard.yard import Toolyard

__all__ = ["open_offline_yard", "open_yard", "run_async", "serve_operation"]

T = TypeVar("T")

_GC_DELAY_SECONDS = 3.0
"""Loading the program takes less. It would take a tenth longer with garbage collection."""


def run_async(coroutine: Coroutine[Any, Any, T], *, gc_delay: float = _GC_DELAY_SECONDS) -> T:
    """Run a coroutine, on uvloop if that is installed. Garbage is collected after ``gc_delay`` seconds.

    Ctrl-C cancels it, so that connections close and children end before KeyboardInterrupt is raised.
    """
    import asyncio  # slow to load, and not for the help

    try:
        from uvloop import new_event_loop  # optional
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.get_loop().call_later(gc_delay, _start_garbage_collection)
        return runner.run(coroutine)


def _start_garbage_collection() -> None:
    # Loaded modules are never freed: frozen, they are not traversed again. Requests create few reference
    # cycles.
    gc.freeze()
    gc.set_threshold(20_000, 20, 5)
    gc.enable()


def open_yard(
    options: Options, configuration: Configuration | None = None, **yard_options: Any
) -> AbstractAsyncContextManager[Toolyard]:
    """Open a Toolyard for this command line. ``configuration`` is used in place of the files. Raises
    ConfigError or AgentsError."""
    from toolyard.yard import Toolyard  # slow to load, as the whole core is

    source = configuration or options.config
    return Toolyard.open(source, data_dir=options.resolved_data_dir, **yard_options)


def open_offline_yard(
    configuration: Configuration, settings: Settings, data_dir: Path
) -> AbstractAsyncContextManager[Toolyard]:
    """Open a Toolyard that only reads stored data, without agents. Writes nothing if nothing is stored."""
    from toolyard.catalog.sqlite_storage import CATALOGUE_FILE_NAME  # slow to load, as the whole core is
    from toolyard.yard import Toolyard

    stored = settings.database_url is not None or (data_dir / CATALOGUE_FILE_NAME).exists()
    return Toolyard(configuration, settings, (), data_dir if stored else None)


async def serve_operation(shared_core: SharedCore, reader: StreamReader, writer: StreamWriter) -> None:
    """Carry out the operation of a command, in the background process."""
    from toolyard.cli.backends import background_handler  # only once a command needs it

    await background_handler.serve_operation(shared_core, reader, writer)
