"""Loading what talks to models: large libraries whose modules import one another in circles.

Two threads that enter such a circle at different places see half a module. So whoever loads a part of it, in
whichever thread, does it here, one after the other. It takes seconds, and neither a request that is answered
meanwhile nor the end of the process waits for them.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module

from toolyard.agents.models.errors import ModelFailed

__all__ = ["LibraryLoader"]

_IMPORT_LOCK = threading.Lock()
"""Of the process, as the modules are."""
_SWITCH_INTERVAL_SECONDS = 0.0005
"""Seconds after which a thread that loads lets others run. The usual 5 ms are spent at each of the dozens of
changes between threads that a request takes."""


class LibraryLoader:
    """Loads for one owner, who can stop it."""

    def __init__(self) -> None:
        self._stop_event = threading.Event()

    def stop(self) -> None:
        """Whoever loads gives up before the next module, and whoever waits for that does not begin."""
        self._stop_event.set()

    async def load_in_thread(self, *modules: str) -> None:
        """Import these, in a thread. Raises ModelFailed."""
        await asyncio.to_thread(self.load, *modules)

    def load(self, *modules: str) -> None:
        """Import these. Not in the event loop. Raises ModelFailed."""
        with self.exclusive_imports():
            for module in modules:
                import_module(module)

    @contextmanager
    def exclusive_imports(self) -> Generator[None]:
        """Import within this. Raises ModelFailed where a library is not installed, or it was stopped."""
        with _IMPORT_LOCK, _shorten_switch_interval(), _install_stop_finder(self._stop_event):
            try:
                yield
            except ImportError as error:
                missing = error.name or "pydantic_ai"
                cause = f"models need libraries that are not installed: there is no {missing}"
                raise ModelFailed(cause, hint="pip install 'toolyard[chat]'") from None
            except _LoadStopped:
                raise ModelFailed("Toolyard is stopping", hint="try again in a moment") from None


@contextmanager
def _shorten_switch_interval() -> Generator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


class _LoadStopped(BaseException):
    """No Exception: a library may do without a module that cannot be loaded, and would go on."""


class _StopFinder:
    """A finder that finds nothing. Every import of one thread asks it first."""

    def __init__(self, stop_event: threading.Event) -> None:
        self._stop_event = stop_event
        self._thread = threading.get_ident()

    def find_spec(self, *_: object) -> None:
        """None: others may find it. Raises _Stopped."""
        if self._stop_event.is_set() and threading.get_ident() == self._thread:
            raise _LoadStopped


@contextmanager
def _install_stop_finder(stop_event: threading.Event) -> Generator[None]:
    """A thread that dies with the process, within a library, may take the exit code with it; so it ends."""
    gate = _StopFinder(stop_event)
    # Lists of their own: other threads may be going through the one that there is.
    sys.meta_path = [gate, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [each for each in sys.meta_path if each is not gate]
