"""A child process that speaks over its standard streams."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections import deque
from collections.abc import Mapping

from toolyard.errors import OutcomeUnknown, Unreachable
from toolyard.protocol.byte_buffer import Raw
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.framing import Line, LineFramer, Oversize
from toolyard.protocol.id_recovery import in_place_of
from toolyard.protocol.incremental_decoder import IN_PLACE_BYTES, OverLimit, decode_message
from toolyard.protocol.pending import Message
from toolyard.transports.stdio import watchdog
from toolyard.transports.stdio.child_process import Child
from toolyard.transports.stdio.stderr_tail import last_words
from toolyard.transports.stdio.supervisor import Nursery, child_environment, signal_group
from toolyard.transports.transport import (
    MESSAGE_LIMIT,
    Receiver,
    Ring,
    TransportFacts,
    in_one_line,
    unreadable,
)
from toolyard.types.server import StdioSpec

__all__ = ["StdioTransport"]

log = logging.getLogger("toolyard.stdio")

_EXIT_AND_EOF = 0.25
"""Seconds between the end of a child's output and its exit, in either order, before we stop waiting."""
_AFTER_STDIN = 1.0
_AFTER_TERM = 5.0
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class StdioTransport:
    """Starts the command in a process group of its own and exchanges one JSON message a line."""

    closing_cancels = False
    uses_headers = False

    def __init__(self, spec: StdioSpec, nursery: Nursery, *, limit: int = MESSAGE_LIMIT) -> None:
        self._spec = spec
        self._nursery = nursery
        self._limit = limit
        self._framer = LineFramer(limit)
        self._errors = LineFramer(64 * 1024)
        self._ring = Ring()
        self._noise = 0
        self._last_noise = ""
        self._receiver: Receiver | None = None
        self._child: Child | None = None
        self._exited = asyncio.Event()
        self._ended = asyncio.Event()
        self._eof = False
        self._patience: asyncio.TimerHandle | None = None
        self._decoding: asyncio.Task[None] | None = None
        """Takes lines that hold a large message; nothing is read from the child meanwhile."""
        self._gone: str | None = None
        self._marker = ""
        self._group = 0

    # What a connection calls.

    async def open(self, receiver: Receiver) -> None:
        self._nursery.prepare()
        variable, self._marker = self._nursery.mark()
        environment = {**child_environment(self._spec.env), variable: self._marker}
        try:
            command = shutil.which(self._spec.command, path=environment.get("PATH")) or self._spec.command
            self._child = Child(self, (command, *self._spec.args), cwd=self._spec.cwd, env=environment)
        except (OSError, ValueError) as error:
            raise self._not_started(error) from None
        self._receiver = receiver
        self._group = self._child.pid
        self._nursery.adopt(self._group, self._marker)

    def _not_started(self, error: OSError | ValueError) -> Unreachable:
        spec = self._spec
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            if spec.cwd is not None and not os.path.isdir(spec.cwd):
                wrong = "is no folder" if os.path.exists(spec.cwd) else "does not exist"
                return Unreachable(
                    f"the working directory {spec.cwd} {wrong}", hint="correct 'cwd' or create the folder"
                )
            first, _, rest = spec.command.partition(" ")
            if rest and shutil.which(first) is not None:
                hint = f"'command' names the program alone, {first}; what follows it belongs into 'args'"
            else:
                hint = "install it, or give its full path in 'command'"
            return Unreachable(f"command not found: {spec.command}", hint=hint)
        if isinstance(error, PermissionError):
            if spec.cwd is not None and not os.access(spec.cwd, os.X_OK):
                return Unreachable(f"no permission to enter the working directory {spec.cwd}")
            if os.path.isdir(os.path.join(spec.cwd or "", spec.command)):
                return Unreachable(f"{spec.command} is a folder", hint="name a program in it in 'command'")
            return Unreachable(f"no permission to run {spec.command}", hint=f"chmod +x {spec.command}")
        return Unreachable(f"could not start {spec.command!r}: {error}")

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if self._gone is not None or self._child is None:
            raise Unreachable(self._gone or "the connection is closed")
        # What a child does not read must not pile up: whoever gives up waiting takes it along.
        await self._child.flow()
        if self._gone is not None:
            raise Unreachable(self._gone)
        if not self._child.write(encode(message) + b"\n"):
            # Most likely it is exiting, and a moment later there is a reason to tell.
            self._ending()
            await self._ended.wait()
            raise Unreachable(self._gone or "closed its standard input")
        await self._child.flow()

    def adopt(self, version: str, *, modern: bool) -> None:
        pass

    def listen(self) -> None:
        pass

    def facts(self) -> TransportFacts:
        return TransportFacts(
            pid=self._group or None, stderr=tuple(self._ring.lines), noise=self._noise, session=True
        )

    async def close(self) -> None:
        self._receiver = None
        self._gone = self._gone or "the connection is closed"
        self._ended.set()
        if self._patience is not None:
            self._patience.cancel()
        if self._decoding is not None:
            self._decoding.cancel()
            await asyncio.gather(self._decoding, return_exceptions=True)
        if self._child is not None and self._nursery.is_ours:
            try:
                await self._end_group(self._child)
            finally:
                # Also on cancellation: what is left must not be.
                signal_group(self._group, signal.SIGKILL)
                self._child.close()
                self._child = None
                self._nursery.release(self._group)
                await self._nursery.sweep(self._marker)

    async def _end_group(self, child: Child) -> None:
        child.end_input()
        await self._exits_within(_AFTER_STDIN)
        if await self._group_lives():
            signal_group(self._group, signal.SIGTERM)
            await self._group_ends_within(_AFTER_TERM)
        if await self._group_lives():
            signal_group(self._group, signal.SIGKILL)
            await self._group_ends_within(1.0)

    async def _exits_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), seconds)

    async def _group_ends_within(self, seconds: float) -> None:
        """Wait for the child, then for what it started, of which nobody tells us."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await self._exits_within(seconds)
        while await self._group_lives() and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def _group_lives(self) -> bool:
        if not self._exited.is_set():
            return True
        return bool(await asyncio.to_thread(watchdog.group_members, self._group))

    # What the child tells.

    def on_output(self, data: bytes) -> None:
        self._take_lines(deque(self._framer.feed(data)))

    def on_output_end(self) -> None:
        self._eof = True
        if (rest := self._framer.rest()) is not None:
            self._take_lines(deque((rest,)))
        self._ending()

    def on_errors(self, data: bytes) -> None:
        for line in self._errors.feed(data):
            self._last_words(line)

    def on_errors_end(self) -> None:
        if (rest := self._errors.rest()) is not None:
            self._last_words(rest)

    def on_exit(self) -> None:
        self._exited.set()
        self._ending()

    def _last_words(self, line: Line) -> None:
        raw = line.head if isinstance(line, Oversize) else line
        self._ring.add(str(raw, "utf-8", "replace").rstrip())

    def _take_lines(self, lines: deque[Line]) -> None:
        while lines:
            if _is_large(lines[0]):
                if self._child is not None:
                    self._child.pause_output()
                self._decoding = asyncio.get_running_loop().create_task(self._take_large_lines(lines))
                return
            self._line(lines.popleft())

    async def _take_large_lines(self, lines: deque[Line]) -> None:
        try:
            while lines:
                await self._take_line(lines.popleft())
        finally:
            self._decoding = None
            if self._child is not None:
                self._child.resume_output()
        if self._eof or self._exited.is_set():
            self._ending()

    async def _take_line(self, line: Line) -> None:
        # Apart from the loop, so that no line is kept while the next one is decoded.
        if isinstance(line, Oversize) or not _is_large(line):
            self._line(line)
            return
        if bytes(line[:1]).isspace() and not bytes(line).strip():
            return
        if line[:3] == _BYTE_ORDER_MARK:
            line = line[3:]
        receiver = self._receiver
        if receiver is None or not receiver.accepts(line):
            return
        if bytes(line[:1]) not in (b"{", b"[") and not bytes(line[:1]).isspace():
            self._skip(line, "")
            return
        try:
            message = await decode_message(line)
        except OverLimit as error:
            self._noise += 1
            self._end_call(line, unreadable(line, error))
        except ValueError as error:
            self._skip(line, unreadable(line, error))
        else:
            if self._receiver is receiver:
                receiver.on_message(message, len(line))

    def _line(self, line: Line) -> None:
        receiver = self._receiver
        if receiver is None:
            return
        if isinstance(line, Oversize):
            self._noise += 1
            if not receiver.accepts(line):
                return
            cause = f"its answer is {line.size} bytes long, over the limit of {self._limit}"
            self._end_call(line, cause)
            return
        if line[:1] in (b"{", b"["):
            try:
                message = decode(line)
            except ValueError as error:
                self._skip(line, unreadable(line, error))
            else:
                receiver.on_message(message, len(line))
            return
        if not (line := bytes(line)).strip():
            return
        with contextlib.suppress(ValueError):
            # White space before a message is allowed.
            if line[:1].isspace() or line[:3] == _BYTE_ORDER_MARK:
                receiver.on_message(decode(line.removeprefix(_BYTE_ORDER_MARK)), len(line))
                return
        self._skip(line, "")

    def _skip(self, line: Raw, cause: str) -> None:
        """Count a line that is not a message, and end the call that it answers, if it does."""
        if cause:
            self._end_call(line, cause)
        self._noise += 1
        self._last_noise = str(line[:200], "utf-8", "replace")
        if self._noise <= 3:
            log.debug("skipped a line on standard output that is no message: %s", self._last_noise)

    def _end_call(self, line: Line, cause: str) -> None:
        """End the one call that an answer was for which nobody can read. Of one that broke off in the middle
        the outcome is unknown, as that of the other calls."""
        message = None if self._eof else in_place_of(line, cause)
        size = line.size if isinstance(line, Oversize) else len(line)
        if self._receiver is not None and (message is not None or size > IN_PLACE_BYTES):
            self._receiver.on_message(message, size)

    def _ending(self) -> None:
        if self._receiver is None or self._decoding is not None:
            return
        if self._eof and self._exited.is_set():
            self._lost()
        elif self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(_EXIT_AND_EOF, self._lost)

    def _lost(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._decoding is not None:
            return  # The end follows what is still being decoded.
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        self._gone = self._epitaph()
        self._ended.set()
        receiver.on_lost(OutcomeUnknown(self._gone))

    def _epitaph(self) -> str:
        code = self._child.returncode if self._child is not None else None
        if code is None:
            text = f"closed its standard {'output' if self._eof else 'input'} but lives on"
        elif code < 0:
            with contextlib.suppress(ValueError):
                return self._with_last_words(f"was killed by {signal.Signals(-code).name}")
            text = f"was killed by signal {-code}"
        else:
            text = f"exited with code {code}"
        return self._with_last_words(text)

    def _with_last_words(self, text: str) -> str:
        words = last_words(self._ring.lines) or in_one_line(self._last_noise, 300)
        return f"{text}: {words}" if words else text


def _is_large(line: Line) -> bool:
    return not isinstance(line, Oversize) and len(line) > IN_PLACE_BYTES
