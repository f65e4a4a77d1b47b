"""Load the model libraries, large packages whose modules import each other in cycles.

Two threads that enter such a cycle at different modules can see partially initialized modules. All imports of
these libraries therefore go through this module, one at a time. They take seconds; neither other requests nor
the shutdown of the process wait for them.
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
"""Shared by the whole process, as modules are."""
_SWITCH_INTERVAL_SECONDS = 0.0005
"""Thread switch interval during imports.

The default of 5 ms would be lost at each of the dozens of thread switches that a concurrent request needs.
"""


class LibraryLoader:
    """Loads libraries for one owner, which can stop the loading."""

    def __init__(self) -> None:
        self._stop_event = threading.Event()

    def stop(self) -> None:
        """Abort before the next module is imported, and refuse further loading."""
        self._stop_event.set()

    async def load_in_thread(self, *modules: str) -> None:
        """Import modules in a thread. Raises ModelFailed."""
        await asyncio.to_thread(self.load, *modules)

    def load(self, *modules: str) -> None:
        """Import modules. Blocks, so do not call it in the event loop. Raises ModelFailed."""
        with self.exclusive_imports():
            for module in modules:
                import_module(module)

    @contextmanager
    def exclusive_imports(self) -> Generator[None]:
        """Import inside this context. Raises ModelFailed if a library is missing or loading was stopped."""
        with _IMPORT_LOCK, _shorten_switch_interval(), _install_stop_finder(self._stop_event):
            try:
                yield
            except ImportError as error:
                missing = error.name or "pydantic_ai"
                cause = f"the model libraries are not installed: {missing} is missing"
                raise ModelFailed(cause, hint="pip install 'toolyard[chat]'") from None
            except _LoadStopped:
                raise ModelFailed("Toolyard is stopping", hint="try again in a moment") from None


@contextmanager
def _shorten_switch_interval() -> Generator[None]:
    previous = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(previous)


class _LoadStopped(BaseException):
    """Raised to abort an import.

    A BaseException, because libraries catch Exception around optional imports.
    """


class _StopFinder:
    """A meta path finder that finds nothing, but is called first for every import of one thread."""

    def __init__(self, stop_event: threading.Event) -> None:
        self._stop_event = stop_event
        self._thread = threading.get_ident()

    def find_spec(self, *_: object) -> None:
        """Return None so that other finders are tried. Raises _LoadStopped."""
        if self._stop_event.is_set() and threading.get_ident() == self._thread:
            raise _LoadStopped


@contextmanager
def _install_stop_finder(stop_event: threading.Event) -> Generator[None]:
    """Abort imports in this thread when the event is set.

    A daemon thread that is killed at shutdown inside a native library may change the exit code, so it must
    end in time.
    """
    finder = _StopFinder(stop_event)
    # Replace the list instead of changing it: other threads may be iterating over it.
    sys.meta_path = [finder, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [each for each in sys.meta_path if each is not finder]
