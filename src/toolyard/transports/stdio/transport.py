"""Stdio transport: a child process that exchanges one JSON message per line."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import signal
from collections import deque
from collections.abc import Mapping

from toolyard.errors import OutcomeUnknown, Unreachable
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.framing import Line, LineFramer, MessageBytes, OversizeLine
from toolyard.protocol.incremental_decoder import MAX_ONE_STEP_BYTES, MessageLimitExceeded, decode_message
from toolyard.protocol.jsonrpc import Message, build_error_for_unreadable
from toolyard.transports.stdio import watchdog
from toolyard.transports.stdio.child_process import ChildProcess
from toolyard.transports.stdio.supervisor import ProcessSupervisor, build_child_environment, signal_group
from toolyard.transports.transport import (
    MAX_MESSAGE_BYTES,
    LogTail,
    Receiver,
    TransportInfo,
    describe_decode_error,
    find_failure_line,
    to_single_line,
)
from toolyard.types.server import StdioSpec

__all__ = ["StdioTransport"]

log = logging.getLogger("toolyard.stdio")

_EXIT_TO_EOF_SECONDS = 0.25
"""Seconds to wait between the end of a child's stdout and its exit, in either order, before reporting
loss."""
_STDIN_GRACE_SECONDS = 1.0
"""Seconds for which a child may exit after its stdin is closed, before SIGTERM."""
_SIGKILL_GRACE_SECONDS = 1.0
"""Seconds to wait for the exit of a killed process, which a busy machine may delay."""
_MAX_LINES_PER_STEP = 2_000
"""Number of lines handled in one step of the event loop. One read may bring a hundred thousand."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PROGRAM_MAGIC = (b"#!", b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")
"""First bytes of scripts, and of binaries of Linux, macOS and Windows."""
_NOT_A_PROGRAM_HINT = (
    "set 'command' to the program that runs it, such as node or python3, and put the file into 'args'"
)


class StdioTransport:
    """Starts the command in its own process group and exchanges messages over its stdin and stdout.

    The end of a server shows twice: its stdout ends and its process exits, in either order. Both are awaited
    for a moment, because the exit code and the last lines of stderr explain the failure.
    """

    cancels_on_disconnect = False
    mirrors_headers = False

    def __init__(
        self, spec: StdioSpec, supervisor: ProcessSupervisor, *, limit: int = MAX_MESSAGE_BYTES
    ) -> None:
        self._spec = spec
        self._supervisor = supervisor
        self._max_message_bytes = limit
        self._max_direct_bytes = min(limit, MAX_ONE_STEP_BYTES)
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
        """Decodes lines with a large message in steps. Nothing is read from the child in the meantime, which
        keeps messages in order and bounds memory."""
        self._end_reason: str | None = None
        self._marker = ""
        self._process_group = 0

    # Transport interface.

    async def open(self, receiver: Receiver) -> None:
        self._supervisor.ensure_can_start()
        variable, self._marker = self._supervisor.make_marker()
        environment = build_child_environment(self._spec.env, self._spec.inherited)
        # Last, so that an entry cannot replace the marker.
        environment[variable] = self._marker
        folder = self._spec.cwd or self._make_folder()
        try:
            command = shutil.which(self._spec.command, path=environment.get("PATH")) or self._spec.command
            with self._supervisor.mark_new_processes(self._marker):
                self._child = ChildProcess(self, (command, *self._spec.args), cwd=folder, env=environment)
        except (OSError, ValueError) as error:
            raise self._start_error(error) from None
        self._receiver = receiver
        # The child leads its own session, so its process id is also the id of its group.
        self._process_group = self._child.pid
        self._supervisor.register_group(self._process_group, self._marker)

    def _make_folder(self) -> str | None:
        """Return the folder to run in if none is configured; the root folder where it cannot be created."""
        folder = self._spec.folder
        if folder is not None:
            try:
                os.makedirs(folder, 0o700, exist_ok=True)
            except OSError as error:
                # A read-only home or a full disk. Most servers do not use their working directory.
                log.warning("%s cannot be created: %s", folder, error.strerror)
                return os.sep
        return folder

    def _start_error(self, error: OSError | ValueError) -> Unreachable:
        spec = self._spec
        path = os.path.join(spec.cwd or "", spec.command)
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            if spec.cwd is not None and not os.path.isdir(spec.cwd):
                problem = "is not a folder" if os.path.exists(spec.cwd) else "does not exist"
                return Unreachable(
                    f"the working directory {spec.cwd} {problem}", hint="correct 'cwd' or create the folder"
                )
            if os.path.isfile(path):
                # The kernel reports a missing interpreter of a script as a missing file.
                return Unreachable(
                    f"the program that {spec.command} names in its first line does not exist",
                    hint="correct the line that begins with #!, or set 'command' to the program that runs it",
                )
            first, _, rest = spec.command.partition(" ")
            if rest and shutil.which(first) is not None:
                hint = f"'command' must be the program alone, {first}; put the rest into 'args'"
            else:
                hint = "install it, or give its full path in 'command'"
            return Unreachable(f"command not found: {spec.command}", hint=hint)
        if isinstance(error, PermissionError):
            if spec.cwd is not None and not os.access(spec.cwd, os.X_OK):
                return Unreachable(f"no permission to enter the working directory {spec.cwd}")
            if os.path.isdir(path):
                return Unreachable(f"{spec.command} is a folder", hint="set 'command' to a program in it")
            hint = f"chmod +x {spec.command}" if _is_program(path) else _NOT_A_PROGRAM_HINT
            return Unreachable(f"no permission to run {spec.command}", hint=hint)
        if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
            return Unreachable(f"{spec.command} is not a program that can run here", hint=_NOT_A_PROGRAM_HINT)
        return Unreachable(f"could not start {spec.command!r}: {error}")

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if self._end_reason is not None or self._child is None:
            raise Unreachable(self._end_reason or "the connection is closed")
        # Wait before writing: messages for a child that does not read must not pile up. If the caller is
        # cancelled here, its message is not sent at all.
        if not self._child.writable.is_set():
            await self._child.writable.wait()
            if self._end_reason is not None:
                raise Unreachable(self._end_reason)
        if not self._child.write(encode(message) + b"\n"):
            # Most likely the child is exiting. Wait for the reason, which follows in a moment.
            self._check_for_loss()
            await self._end_event.wait()
            raise Unreachable(self._end_reason or "closed its standard input")
        if not self._child.writable.is_set():
            await self._child.writable.wait()

    def set_protocol_version(self, version: str) -> None:
        pass

    def start_listening(self) -> None:
        pass

    def get_info(self) -> TransportInfo:
        return TransportInfo(
            pid=self._process_group or None,
            stderr=tuple(self._stderr_tail.lines),
            skipped_lines=self._skipped_lines,
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
                # Runs on cancellation too: no process may be left behind, not even as a zombie, which stays
                # if the event loop ends before the exit is noticed.
                signal_group(self._process_group, signal.SIGKILL)
                await self._wait_for_exit(_SIGKILL_GRACE_SECONDS)
                # Closing reaps the child, after which its id may be reused. So the group is killed before,
                # and other descendants are found by their marker after.
                self._child.close()
                self._child = None
                self._supervisor.unregister_group(self._process_group)
                await self._supervisor.kill_escaped(self._marker)

    async def _stop_process_group(self, child: ChildProcess) -> None:
        """Close stdin, then send SIGTERM, then SIGKILL, each after a grace period for the whole group."""
        # The order that the specification gives for shutdown (Lifecycle, stdio).
        child.write_eof()
        await self._wait_for_exit(_STDIN_GRACE_SECONDS)
        if await self._is_group_alive():
            signal_group(self._process_group, signal.SIGTERM)
            await self._wait_for_group_exit(self._supervisor.sigterm_grace_seconds)
        if await self._is_group_alive():
            signal_group(self._process_group, signal.SIGKILL)
            await self._wait_for_group_exit(_SIGKILL_GRACE_SECONDS)

    async def _wait_for_exit(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exit_event.wait()

    async def _wait_for_group_exit(self, seconds: float) -> None:
        """Wait for the child, then for its descendants, whose exit is not signalled and must be polled."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await self._wait_for_exit(seconds)
        while await self._is_group_alive() and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def _is_group_alive(self) -> bool:
        # While the child itself runs, searching /proc is not needed.
        if not self._exit_event.is_set():
            return True
        return bool(await asyncio.to_thread(watchdog.group_members, self._process_group))

    # Events of the child process (ChildProcessListener).

    def on_stdout(self, data: bytes) -> None:
        # Most reads are one whole message.
        if (
            data.find(b"\n") == len(data) - 1 <= self._max_direct_bytes
            and not self._stdout_framer.pending_bytes
        ):
            self._handle_line(data[:-1])
            return
        lines = deque(self._stdout_framer.feed(data))
        # Dropped bytes of an oversized line count at once: such a line may never end.
        if self._stdout_framer.excess_bytes and self._receiver is not None:
            self._receiver.on_stray_lines(0, self._stdout_framer.excess_bytes)
        self._handle_lines(lines)

    def on_stdout_closed(self) -> None:
        self._is_stdout_closed = True
        if (rest := self._stdout_framer.take_remainder()) is not None:
            self._handle_lines(deque((rest,)))
        self._check_for_loss()

    def on_stderr(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.on_stray_lines(data.count(b"\n"), len(data), "stderr")
        # One read may bring a hundred thousand lines, of which the last ones are kept.
        for line in self._stderr_framer.feed(data)[-self._stderr_tail.max_lines :]:
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
        count = 0
        while lines:
            # Stop reading until a large line, or the rest of very many, is handled, so that later messages
            # cannot overtake it.
            count += 1
            if _is_large(lines[0]) or count > _MAX_LINES_PER_STEP:
                if self._child is not None:
                    self._child.pause_reading()
                self._decode_task = asyncio.get_running_loop().create_task(self._handle_lines_in_steps(lines))
                return
            self._handle_line(lines.popleft())

    async def _handle_lines_in_steps(self, lines: deque[Line]) -> None:
        count = 0
        try:
            while lines:
                await self._handle_line_incrementally(lines.popleft())
                count += 1
                if count % _MAX_LINES_PER_STEP == 0:
                    await asyncio.sleep(0)
        finally:
            self._decode_task = None
            if self._child is not None:
                self._child.resume_reading()
        if self._is_stdout_closed or self._exit_event.is_set():
            self._check_for_loss()

    async def _handle_line_incrementally(self, line: Line) -> None:
        # A separate function, so that no local variable keeps a line alive while the next one is decoded.
        if isinstance(line, OversizeLine) or not _is_large(line):
            self._handle_line(line)
            return
        if bytes(line[:1]).isspace() and not bytes(line).strip():
            self._count_stray_line(line)  # A line of whitespace alone is ignored.
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
            cause = f"sent a response of {line.size} bytes, over the limit of {self._max_message_bytes}"
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
            self._count_stray_line(line)
            return
        with contextlib.suppress(ValueError):
            # Whitespace or a byte order mark before a message is tolerated.
            if line[:1].isspace() or line[:3] == _BYTE_ORDER_MARK:
                receiver.on_message(decode(line.removeprefix(_BYTE_ORDER_MARK)), len(line))
                return
        self._skip_line(line, "")

    def _skip_line(self, line: MessageBytes, cause: str) -> None:
        """Count a line that is not a message. If it is a broken response, fail the call that it answers."""
        if cause:
            self._fail_matching_call(line, cause)
        self._count_stray_line(line)
        self._skipped_lines += 1
        self._last_skipped_line = str(line[:200], "utf-8", "replace")
        if self._skipped_lines <= 3:
            log.debug("skipped a line on stdout that is not a message: %s", self._last_skipped_line)

    def _count_stray_line(self, line: MessageBytes) -> None:
        if self._receiver is not None:
            self._receiver.on_stray_lines(1, len(line) + 1)

    def _fail_matching_call(self, line: Line, cause: str) -> None:
        """Fail the one call that an unreadable response belongs to.

        Not if stdout has ended: the response was cut off, and the outcome of its call is unknown like that of
        all others.
        """
        message = None if self._is_stdout_closed else build_error_for_unreadable(line, cause)
        size = line.size if isinstance(line, OversizeLine) else len(line)
        if self._receiver is not None and (message is not None or size > MAX_ONE_STEP_BYTES):
            self._receiver.on_message(message, size)

    def _check_for_loss(self) -> None:
        if self._receiver is None or self._decode_task is not None:
            return
        # Report at once if both have happened, otherwise give the other one a moment to follow.
        if self._is_stdout_closed and self._exit_event.is_set():
            self._report_loss()
        elif self._loss_timer is None:
            self._loss_timer = asyncio.get_running_loop().call_later(_EXIT_TO_EOF_SECONDS, self._report_loss)

    def _report_loss(self) -> None:
        if self._loss_timer is not None:
            self._loss_timer.cancel()
            self._loss_timer = None
        if self._decode_task is not None:
            return  # The task calls _check_for_loss when it is done.
        # Cleared before the call: the loss is reported once, and lines that are still buffered are not
        # delivered after it.
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        self._end_reason = self._describe_exit()
        self._end_event.set()
        receiver.on_lost(OutcomeUnknown(self._end_reason))

    def _describe_exit(self) -> str:
        code = self._child.returncode if self._child is not None else None
        if code is None:
            text = (
                f"closed its standard {'output' if self._is_stdout_closed else 'input'} but is still running"
            )
        elif code < 0:
            with contextlib.suppress(ValueError):
                return self._append_failure_line(f"was killed by {signal.Signals(-code).name}")
            text = f"was killed by signal {-code}"
        else:
            text = f"exited with code {code}"
        return self._append_failure_line(text)

    def _append_failure_line(self, text: str) -> str:
        line = find_failure_line(self._stderr_tail.lines) or to_single_line(self._last_skipped_line, 300)
        return f"{text}: {line}" if line else text


def _is_program(path: str) -> bool:
    """Return whether a file begins like a script or a binary; True if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(4).startswith(_PROGRAM_MAGIC)
    except OSError:
        return True


def _is_large(line: Line) -> bool:
    return not isinstance(line, OversizeLine) and len(line) > MAX_ONE_STEP_BYTES
