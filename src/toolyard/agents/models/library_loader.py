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

__all__ = ["Loading"]

_ONE_AT_A_TIME = threading.Lock()
"""Of the process, as the modules are."""
_TURN = 0.0005
"""Seconds after which a thread that loads lets others run. The usual 5 ms are spent at each of the dozens of
changes between threads that a request takes."""


class Loading:
    """Loads for one owner, who can stop it."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Whoever loads gives up before the next module, and whoever waits for that does not begin."""
        self._stopped.set()

    async def loaded(self, *modules: str) -> None:
        """Import these, in a thread. Raises ModelFailed."""
        await asyncio.to_thread(self.load, *modules)

    def load(self, *modules: str) -> None:
        """Import these. Not in the event loop. Raises ModelFailed."""
        with self.alone():
            for module in modules:
                import_module(module)

    @contextmanager
    def alone(self) -> Generator[None]:
        """Import within this. Raises ModelFailed where a library is not installed, or it was stopped."""
        with _ONE_AT_A_TIME, _quietly(), _stoppable(self._stopped):
            try:
                yield
            except ImportError as error:
                missing = error.name or "pydantic_ai"
                cause = f"models need libraries that are not installed: there is no {missing}"
                raise ModelFailed(cause, hint="pip install 'toolyard[chat]'") from None
            except _Stopped:
                raise ModelFailed("Toolyard is stopping", hint="try again in a moment") from None


@contextmanager
def _quietly() -> Generator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


class _Stopped(BaseException):
    """No Exception: a library may do without a module that cannot be loaded, and would go on."""


class _Gate:
    """A finder that finds nothing. Every import of one thread asks it first."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._thread = threading.get_ident()

    def find_spec(self, *_: object) -> None:
        """None: others may find it. Raises _Stopped."""
        if self._stopped.is_set() and threading.get_ident() == self._thread:
            raise _Stopped


@contextmanager
def _stoppable(stopped: threading.Event) -> Generator[None]:
    """A thread that dies with the process, within a library, may take the exit code with it; so it ends."""
    gate = _Gate(stopped)
    # Lists of their own: other threads may be going through the one that there is.
    sys.meta_path = [gate, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [each for each in sys.meta_path if each is not gate]
