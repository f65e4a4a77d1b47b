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
from toolyard.protocol.byte_buffer import MessageBytes
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.framing import Line, LineFramer, OversizeLine
from toolyard.protocol.id_recovery import build_error_for_unreadable
from toolyard.protocol.incremental_decoder import MAX_ONE_STEP_BYTES, MessageLimitExceeded, decode_message
from toolyard.protocol.pending import Message
from toolyard.transports.stdio import watchdog
from toolyard.transports.stdio.child_process import ChildProcess
from toolyard.transports.stdio.stderr_tail import find_failure_line
from toolyard.transports.stdio.supervisor import ProcessSupervisor, build_child_environment, signal_group
from toolyard.transports.transport import (
    MAX_MESSAGE_BYTES,
    LogTail,
    Receiver,
    TransportInfo,
    describe_decode_error,
    to_single_line,
)
from toolyard.types.server import StdioSpec

__all__ = ["StdioTransport"]

log = logging.getLogger("toolyard.stdio")

_EXIT_TO_EOF_SECONDS = 0.25
"""Seconds between the end of a child's output and its exit, in either order, before we stop waiting."""
_STDIN_GRACE_SECONDS = 1.0
_SIGTERM_GRACE_SECONDS = 5.0
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class StdioTransport:
    """Starts the command in a process group of its own and exchanges one JSON message a line."""

    cancels_on_disconnect = False
    mirrors_headers = False

    def __init__(
        self, spec: StdioSpec, supervisor: ProcessSupervisor, *, limit: int = MAX_MESSAGE_BYTES
    ) -> None:
        self._spec = spec
        self._supervisor = supervisor
        self._max_message_bytes = limit
        self._stdout_framer = LineFramer(limit)
        self._stderr_framer = LineFramer(64 * 1024)
        self._stderr_tail = LogTail()
        self._skipped_lines = 0
        self._last_skipped_line = ""
        self._receiver: Receiver | None = None
        self._child: ChildProcess | None = None
        self._exit_event = asyncio.Event()
        self._end_event = asyncio.Event()
        self._is_stdout_closed = False
        self._loss_timer: asyncio.TimerHandle | None = None
        self._decode_task: asyncio.Task[None] | None = None
        """Takes lines that hold a large message; nothing is read from the child meanwhile."""
        self._end_reason: str | None = None
        self._marker = ""
        self._process_group = 0

    # What a connection calls.

    async def open(self, receiver: Receiver) -> None:
        self._supervisor.prepare_start()
        variable, self._marker = self._supervisor.mark()
        environment = {**build_child_environment(self._spec.env), variable: self._marker}
        try:
            command = shutil.which(self._spec.command, path=environment.get("PATH")) or self._spec.command
            self._child = ChildProcess(self, (command, *self._spec.args), cwd=self._spec.cwd, env=environment)
        except (OSError, ValueError) as error:
            raise self._start_error(error) from None
        self._receiver = receiver
        self._process_group = self._child.pid
        self._supervisor.register_group(self._process_group, self._marker)

    def _start_error(self, error: OSError | ValueError) -> Unreachable:
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
        if self._end_reason is not None or self._child is None:
            raise Unreachable(self._end_reason or "the connection is closed")
        # What a child does not read must not pile up: whoever gives up waiting takes it along.
        await self._child.drain()
        if self._end_reason is not None:
            raise Unreachable(self._end_reason)
        if not self._child.write(encode(message) + b"\n"):
            # Most likely it is exiting, and a moment later there is a reason to tell.
            self._check_for_loss()
            await self._end_event.wait()
            raise Unreachable(self._end_reason or "closed its standard input")
        await self._child.drain()

    def set_protocol_version(self, version: str, *, modern: bool) -> None:
        pass

    def start_listening(self) -> None:
        pass

    def get_info(self) -> TransportInfo:
        return TransportInfo(
            pid=self._process_group or None,
            stderr=tuple(self._stderr_tail.lines),
            skipped_lines=self._skipped_lines,
            has_session=True,
        )

    async def close(self) -> None:
        self._receiver = None
        self._end_reason = self._end_reason or "the connection is closed"
        self._end_event.set()
        if self._loss_timer is not None:
            self._loss_timer.cancel()
        if self._decode_task is not None:
            self._decode_task.cancel()
            await asyncio.gather(self._decode_task, return_exceptions=True)
        if self._child is not None and self._supervisor.is_owner_process:
            try:
                await self._stop_process_group(self._child)
            finally:
                # Also on cancellation: what is left must not be.
                signal_group(self._process_group, signal.SIGKILL)
                self._child.close()
                self._child = None
                self._supervisor.unregister_group(self._process_group)
                await self._supervisor.kill_escaped(self._marker)

    async def _stop_process_group(self, child: ChildProcess) -> None:
        child.write_eof()
        await self._wait_for_exit(_STDIN_GRACE_SECONDS)
        if await self._is_group_alive():
            signal_group(self._process_group, signal.SIGTERM)
            await self._wait_for_group_exit(_SIGTERM_GRACE_SECONDS)
        if await self._is_group_alive():
            signal_group(self._process_group, signal.SIGKILL)
            await self._wait_for_group_exit(1.0)

    async def _wait_for_exit(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exit_event.wait(), seconds)

    async def _wait_for_group_exit(self, seconds: float) -> None:
        """Wait for the child, then for what it started, of which nobody tells us."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await self._wait_for_exit(seconds)
        while await self._is_group_alive() and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def _is_group_alive(self) -> bool:
        if not self._exit_event.is_set():
            return True
        return bool(await asyncio.to_thread(watchdog.group_members, self._process_group))

    # What the child tells.

    def on_stdout(self, data: bytes) -> None:
        self._handle_lines(deque(self._stdout_framer.feed(data)))

    def on_stdout_closed(self) -> None:
        self._is_stdout_closed = True
        if (rest := self._stdout_framer.take_remainder()) is not None:
            self._handle_lines(deque((rest,)))
        self._check_for_loss()

    def on_stderr(self, data: bytes) -> None:
        for line in self._stderr_framer.feed(data):
            self._record_stderr_line(line)

    def on_stderr_closed(self) -> None:
        if (rest := self._stderr_framer.take_remainder()) is not None:
            self._record_stderr_line(rest)

    def on_exit(self) -> None:
        self._exit_event.set()
        self._check_for_loss()

    def _record_stderr_line(self, line: Line) -> None:
        raw = line.head if isinstance(line, OversizeLine) else line
        self._stderr_tail.add(str(raw, "utf-8", "replace").rstrip())

    def _handle_lines(self, lines: deque[Line]) -> None:
        while lines:
            if _is_large(lines[0]):
                if self._child is not None:
                    self._child.pause_reading()
                self._decode_task = asyncio.get_running_loop().create_task(self._handle_large_lines(lines))
                return
            self._handle_line(lines.popleft())

    async def _handle_large_lines(self, lines: deque[Line]) -> None:
        try:
            while lines:
                await self._handle_line_incrementally(lines.popleft())
        finally:
            self._decode_task = None
            if self._child is not None:
                self._child.resume_reading()
        if self._is_stdout_closed or self._exit_event.is_set():
            self._check_for_loss()

    async def _handle_line_incrementally(self, line: Line) -> None:
        # Apart from the loop, so that no line is kept while the next one is decoded.
        if isinstance(line, OversizeLine) or not _is_large(line):
            self._handle_line(line)
            return
        if bytes(line[:1]).isspace() and not bytes(line).strip():
            return
        if line[:3] == _BYTE_ORDER_MARK:
            line = line[3:]
        receiver = self._receiver
        if receiver is None or not receiver.should_decode(line):
            return
        if bytes(line[:1]) not in (b"{", b"[") and not bytes(line[:1]).isspace():
            self._skip_line(line, "")
            return
        try:
            message = await decode_message(line)
        except MessageLimitExceeded as error:
            self._skipped_lines += 1
            self._fail_matching_call(line, describe_decode_error(line, error))
        except ValueError as error:
            self._skip_line(line, describe_decode_error(line, error))
        else:
            if self._receiver is receiver:
                receiver.on_message(message, len(line))

    def _handle_line(self, line: Line) -> None:
        receiver = self._receiver
        if receiver is None:
            return
        if isinstance(line, OversizeLine):
            self._skipped_lines += 1
            if not receiver.should_decode(line):
                return
            cause = f"its answer is {line.size} bytes long, over the limit of {self._max_message_bytes}"
            self._fail_matching_call(line, cause)
            return
        if line[:1] in (b"{", b"["):
            try:
                message = decode(line)
            except ValueError as error:
                self._skip_line(line, describe_decode_error(line, error))
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
        self._skip_line(line, "")

    def _skip_line(self, line: MessageBytes, cause: str) -> None:
        """Count a line that is not a message, and end the call that it answers, if it does."""
        if cause:
            self._fail_matching_call(line, cause)
        self._skipped_lines += 1
        self._last_skipped_line = str(line[:200], "utf-8", "replace")
        if self._skipped_lines <= 3:
            log.debug("skipped a line on standard output that is no message: %s", self._last_skipped_line)

    def _fail_matching_call(self, line: Line, cause: str) -> None:
        """End the one call that an answer was for which nobody can read. Of one that broke off in the middle
        the outcome is unknown, as that of the other calls."""
        message = None if self._is_stdout_closed else build_error_for_unreadable(line, cause)
        size = line.size if isinstance(line, OversizeLine) else len(line)
        if self._receiver is not None and (message is not None or size > MAX_ONE_STEP_BYTES):
            self._receiver.on_message(message, size)

    def _check_for_loss(self) -> None:
        if self._receiver is None or self._decode_task is not None:
            return
        if self._is_stdout_closed and self._exit_event.is_set():
            self._report_loss()
        elif self._loss_timer is None:
            self._loss_timer = asyncio.get_running_loop().call_later(_EXIT_TO_EOF_SECONDS, self._report_loss)

    def _report_loss(self) -> None:
        if self._loss_timer is not None:
            self._loss_timer.cancel()
            self._loss_timer = None
        if self._decode_task is not None:
            return  # The end follows what is still being decoded.
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        self._end_reason = self._describe_exit()
        self._end_event.set()
        receiver.on_lost(OutcomeUnknown(self._end_reason))

    def _describe_exit(self) -> str:
        code = self._child.returncode if self._child is not None else None
        if code is None:
            text = f"closed its standard {'output' if self._is_stdout_closed else 'input'} but lives on"
        elif code < 0:
            with contextlib.suppress(ValueError):
                return self._append_failure_line(f"was killed by {signal.Signals(-code).name}")
            text = f"was killed by signal {-code}"
        else:
            text = f"exited with code {code}"
        return self._append_failure_line(text)

    def _append_failure_line(self, text: str) -> str:
        words = find_failure_line(self._stderr_tail.lines) or to_single_line(self._last_skipped_line, 300)
        return f"{text}: {words}" if words else text


def _is_large(line: Line) -> bool:
    return not isinstance(line, OversizeLine) and len(line) > MAX_ONE_STEP_BYTES
