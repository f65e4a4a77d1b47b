"""``toolyard stdio``: connects the standard streams of one client to the Toolyard of its data directory.

The shim copies bytes and parses no messages. If the background process ends, the shim answers the open
requests with an error, attaches to the next process or starts one, and sends the client's ``initialize``
again, so that the client sees neither.
"""

import _socket
import os
import select
import stat
import sys
import time

from toolyard.background import attach_protocol
from toolyard.background.link import STANDALONE_VARIABLE, BackgroundLink, NotAttached
from toolyard.background.runtime_dir import RuntimeDirError

__all__ = ["find_data_dir", "parse_arguments", "run_shim"]

_CHUNK_BYTES = 256 * 1024
_DRAIN_TIMEOUT_MILLISECONDS = 5_000
"""Time for a client that writes no more to read its answers."""
_HANG_UP_FLAG = getattr(select, "POLLRDHUP", 0)
_MAX_UNSENT_BYTES = 1024 * 1024
"""Size of the unsent data in one direction from which on the other end is not read."""
_VALUE_OPTIONS = ("--agent", "--bundle", "--server", "--mode", "--config", "--data-dir")
_SHARED_OPTIONS = ("--config", "--data-dir")
_INTERNAL_ERROR = -32603
_SHORT_LIFE_SECONDS = 10.0
_MAX_SHORT_LIVES = 3
"""Number of processes in a row that end within this time, from which on a client attaches only to ask."""
_MAX_SENDS = 3
"""Number of processes that may be killed while they have the same line."""


def parse_arguments(words: list[str]) -> dict[str, str] | None:
    """Return the options of ``toolyard stdio`` by name, or None for every other command line.

    None also stands for a line that is not valid, with other options or ``--standalone``: those are left to
    the full parser.
    """
    options: dict[str, str] = {}
    is_stdio = False
    remaining = iter(words)
    for word in remaining:
        name, separator, value = word.partition("=")
        if word == "stdio" and not is_stdio:
            is_stdio = True
        elif name in (_VALUE_OPTIONS if is_stdio else _SHARED_OPTIONS):
            given = value if separator else next(remaining, None)
            if given is None:
                return None
            options[name[2:]] = given
        else:
            return None
    has_conflict = len(options.keys() & {"agent", "bundle", "server"}) > 1
    is_valid = is_stdio and not has_conflict and options.get("mode", "meta") in ("meta", "direct")
    return options if is_valid else None


def find_data_dir(options: dict[str, str]) -> str:
    """Return the data directory, as ``config.data_dir`` finds it."""
    environment = os.environ
    named = options.get("data-dir") or environment.get("TOOLYARD_DATA_DIR")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    if sys.platform == "linux":
        # The same as below, which takes longer to import than everything else here.
        base = environment.get("XDG_DATA_HOME", "")
        return os.path.join(base if base.strip() else os.path.expanduser("~/.local/share"), "toolyard")
    from platformdirs import user_data_dir

    return user_data_dir("toolyard", appauthor=False)


def run_shim(options: dict[str, str]) -> int | None:
    """Serve the client until it disconnects. Return the exit code, or None if this must run standalone."""
    if os.environ.get(STANDALONE_VARIABLE) == "1" or not (_can_wait_for(0) and _can_wait_for(1)):
        return None
    try:
        shim = _Shim(BackgroundLink(find_data_dir(options), options))
    except (NotAttached, RuntimeDirError, OSError) as error:
        _print_note(f"this client gets its own Toolyard process: {error}")
        return None
    try:
        return shim.run()
    except KeyboardInterrupt:
        return 130


def _can_wait_for(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def _print_note(text: str) -> None:
    try:
        os.write(2, f"note: {text}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass


class _Shim:
    """One client and the connection that serves it."""

    def __init__(self, link: BackgroundLink) -> None:
        """Raises NotAttached or OSError."""
        self._link = link
        self._connection: _socket.socket | None
        self._connection, self._line_count_file = link.attach()
        self._attached_at = time.monotonic()
        self._short_lives = 0
        """Number of processes in a row that were lost soon after this client was attached to them."""
        self._sends: dict[bytes, int] = {}
        """Lines that are sent again, with the number of processes that had each."""
        self._open_lines: dict[int, bytes] = {}
        """Complete lines of the client that are not answered, by number."""
        self._kept_lines: dict[bytes, tuple[int, bytes]] = {}
        """Lines to send again after attaching anew, by their key, with their number."""
        self._unanswered_kept: set[int] = set()
        """Numbers of those whose answer the client has not got yet."""
        self._partial_line = bytearray()
        self._line_count = 0
        self._replayed_count = 0
        """Number of the first lines that the client got an answer to from an earlier process."""
        self._buffer = memoryview(bytearray(_CHUNK_BYTES))
        """Reused for all input: memory of this size for each message costs more than the copying."""
        self._to_process = bytearray()
        self._to_client = bytearray()
        self._frames = bytearray()
        self._input_ended = False
        self._hung_up = False
        """Whether the client writes no more, even if some input is left to read."""
        self._move: tuple[int, bytes] | None = None
        """Last line that the process read before it closed the connection on purpose, and when to attach."""

    def run(self) -> int:
        """Copy until the client disconnects, and return the exit code."""
        for descriptor in (0, 1):
            if not os.isatty(descriptor):
                os.set_blocking(descriptor, False)
        try:
            while True:
                if self._connection is None and not self._attach_again():
                    return 1
                if self._copy_once():
                    return 0
        except BrokenPipeError:
            return 0  # The client no longer reads.

    def _copy_once(self) -> bool:
        """Wait for something to copy, and copy it. Return True at the end."""
        connection = self._connection
        assert connection is not None
        poller = select.poll()
        number = connection.fileno()
        # Nothing more is read from the process while the client does not take what it has, so that the
        # process is slowed down instead of this buffer growing.
        events = (select.POLLIN if len(self._to_client) <= _MAX_UNSENT_BYTES else 0) | (
            select.POLLOUT if self._to_process else 0
        )
        poller.register(number, events)
        if not self._input_ended and len(self._to_process) <= _MAX_UNSENT_BYTES:
            poller.register(0, select.POLLIN)
        elif not self._hung_up:
            # Input is not read now, but a client that goes away must still be noticed.
            poller.register(0, _HANG_UP_FLAG)
        # Without POLLOUT, only the end of a reader is reported.
        poller.register(1, select.POLLOUT if self._to_client else 0)
        # A client that writes no more may not read either.
        is_leaving = self._input_ended or self._hung_up
        timeout = _DRAIN_TIMEOUT_MILLISECONDS if is_leaving and self._to_client else None
        # The usual case: nothing is left to send, so the same events are waited for again and again.
        is_plain = events == select.POLLIN and not self._to_client and not is_leaving
        while True:
            ready = poller.poll(timeout)
            if not ready:
                return True
            for descriptor, event in ready:
                if descriptor == 0 and len(self._to_process) <= _MAX_UNSENT_BYTES:
                    self._read_input()
                elif descriptor == 0:
                    self._hung_up = True
                elif descriptor == 1:
                    if event & (select.POLLERR | select.POLLHUP) and not event & select.POLLOUT:
                        return True
                    self._write_output()
                elif not self._exchange(connection, event):
                    return self._on_connection_lost()
            if not is_plain or self._to_process or self._to_client or self._input_ended:
                return False

    # The client.

    def _read_input(self) -> None:
        try:
            size = os.readv(0, [self._buffer])
        except BlockingIOError:
            return
        data = bytes(self._buffer[:size])
        if not data:
            self._input_ended = True
            if not self._to_process:
                self._end_requests()
            return
        self._count_lines(data)
        self._send(data)

    def _count_lines(self, data: bytes) -> None:
        if not self._partial_line and data.find(b"\n") == len(data) - 1:
            self._line_count += 1
            self._open_lines[self._line_count] = data
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._partial_line += line
            self._line_count += 1
            self._open_lines[self._line_count] = bytes(self._partial_line) + b"\n"
            self._partial_line.clear()
        self._partial_line += rest

    def _write_output(self) -> None:
        if self._to_client:
            try:
                sent = os.write(1, self._to_client)
            except BlockingIOError:
                return
            del self._to_client[:sent]

    # The process.

    def _send(self, data: bytes) -> None:
        # Sent at once, without a round through the poll, as the socket usually takes it all. If bytes are
        # waiting already, these must queue behind them.
        if not self._to_process and self._connection is not None:
            try:
                sent = self._connection.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # Reading reports the end, and what it has sent before.
            if sent == len(data):
                return
            data = data[sent:]
        self._to_process += data

    def _end_requests(self) -> None:
        if self._connection is not None:
            try:
                self._connection.shutdown(_socket.SHUT_WR)
            except OSError:
                pass

    def _exchange(self, connection: _socket.socket, event: int) -> bool:
        """Send and receive. Return False if the connection has ended."""
        if event & select.POLLOUT and self._to_process:
            try:
                sent = connection.send(self._to_process)
                del self._to_process[:sent]
            except BlockingIOError:
                pass
            except OSError:
                # The process has ended. What it sent before is read below, until the connection reports its
                # end.
                self._to_process.clear()
            if not self._to_process and self._input_ended:
                self._end_requests()
        if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
            try:
                size = connection.recv_into(self._buffer)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not size:
                return False
            self._receive(self._buffer[:size])
        return True

    def _receive(self, data: memoryview) -> None:
        # Whole frames only: of a message that the process did not complete, the client gets nothing.
        frames = self._frames
        frames += data
        start = 0
        while len(frames) - start >= attach_protocol.FRAME_HEADER_BYTES:
            kind, line, size = attach_protocol.read_frame_header(frames, start)
            end = start + attach_protocol.FRAME_HEADER_BYTES + size
            if len(frames) < end:
                break
            payload = bytes(frames[start + attach_protocol.FRAME_HEADER_BYTES : end])
            start = end
            if kind == attach_protocol.FrameKind.MESSAGE:
                # Only the frame that completes the answers of a line has its number; others have 0.
                if line:
                    self._open_lines.pop(line, None)
                    self._unanswered_kept.discard(line)
                self._to_client += payload
            # The process sends this before it handles the line, so the line is still open here.
            elif kind == attach_protocol.FrameKind.KEEP and line in self._open_lines:
                self._kept_lines[payload] = line, self._open_lines[line]
                if line > self._replayed_count:
                    self._unanswered_kept.add(line)
            elif kind == attach_protocol.FrameKind.FORGET:
                self._kept_lines.pop(payload, None)
            elif kind == attach_protocol.FrameKind.MOVE:
                self._move = line, payload
        if start:
            del frames[:start]
        if self._to_client:
            self._write_output()

    # Another process.

    def _on_connection_lost(self) -> bool:
        """Prepare to attach again. Return True if there is nothing left to do."""
        assert self._connection is not None
        self._connection.close()
        self._connection = None
        # The rest of an incomplete message will not come. Unsent bytes belong to open lines, which are sent
        # again whole.
        self._frames.clear()
        self._to_process.clear()
        # A process that closes the connection on purpose says so first. Otherwise it is not known what it did
        # with the last lines.
        was_killed = self._move is None
        last_line, when = self._move or self._find_handled_lines()
        self._move = None
        if self._line_count_file is not None:
            os.close(self._line_count_file)
            self._line_count_file = None
        is_repeated = (was_killed or when == b"now") and not self._input_ended
        self._answer_open_lines(last_line, is_repeated)
        if was_killed:
            self._answer_fatal_lines()
        self._flush_output()
        if self._input_ended:
            return not any(number > last_line for number in self._open_lines)
        # Nothing waits for an answer. No process is started before the client sends something, or leaves.
        if when == b"later" and not self._find_waiting_lines() and not self._partial_line:
            poller = select.poll()
            poller.register(0, select.POLLIN)
            poller.register(1, 0)
            if any(descriptor == 1 for descriptor, _ in poller.poll()):
                return True
            self._read_input()
            return self._input_ended
        return False

    def _find_handled_lines(self) -> tuple[int, bytes]:
        """Return the last line that a process which was killed may have handled, and when to attach."""
        if time.monotonic() - self._attached_at < _SHORT_LIFE_SECONDS:
            self._short_lives += 1
        else:
            self._short_lives = 0
            self._sends.clear()
        when = b"now" if self._short_lives < _MAX_SHORT_LIVES else b"later"
        if self._line_count_file is None:
            return self._line_count, when
        return attach_protocol.read_line_count(self._line_count_file), when

    def _answer_open_lines(self, last_line: int, is_repeated: bool) -> None:
        """Answer the requests in the lines up to this one with an error, except those that are sent again.

        ``is_repeated``: these are also the requests that change nothing.
        """
        kept = {number for number, _ in self._kept_lines.values()}
        for number in [number for number in self._open_lines if number <= last_line and number not in kept]:
            message = _parse_line(self._open_lines[number])
            if not (is_repeated and _is_repeatable(message)):
                self._answer_line(number, message)

    def _answer_line(self, number: int, message: object) -> None:
        del self._open_lines[number]
        for id in _find_request_ids(message):
            self._to_client += _build_error(id)

    def _answer_fatal_lines(self) -> None:
        """Answer the lines that each of several killed processes left open: one of them may be the cause."""
        before, self._sends = self._sends, {}
        for number in self._find_waiting_lines():
            line = self._open_lines[number]
            count = before.get(line, 0) + 1
            if count < _MAX_SENDS:
                self._sends[line] = count
            else:
                self._kept_lines = {key: each for key, each in self._kept_lines.items() if each[0] != number}
                self._unanswered_kept.discard(number)
                self._answer_line(number, _parse_line(line))

    def _find_waiting_lines(self) -> list[int]:
        """Return the open lines whose answer the client waits for. Requests that only listen have none until
        their end."""
        kept = self._kept_lines.items()
        idle = {line for key, (line, _) in kept if key.startswith(b"listen ")}
        idle |= {line for line, _ in self._kept_lines.values()} - self._unanswered_kept
        return sorted(self._open_lines.keys() - idle)

    def _flush_output(self) -> None:
        poller = select.poll()
        poller.register(1, select.POLLOUT)
        while self._to_client and poller.poll(_DRAIN_TIMEOUT_MILLISECONDS if self._input_ended else None):
            self._write_output()

    def _attach_again(self) -> bool:
        """Attach to another process, and send it the state of the client and the lines that are open."""
        answered = [each for each in self._kept_lines.values() if each[0] not in self._unanswered_kept]
        numbers = sorted(self._open_lines.keys() - {number for number, _ in answered})
        try:
            self._connection, self._line_count_file = self._link.attach(len(answered))
        except (NotAttached, OSError) as error:
            # Those that may have been carried out were answered before.
            for number in numbers:
                for id in _find_request_ids(_parse_line(self._open_lines[number])):
                    self._to_client += _build_error(id, error)
            self._flush_output()
            _print_note(f"the connection to Toolyard was lost: {error}")
            return False
        self._attached_at = time.monotonic()
        # The new process counts from the first line that it gets.
        # Answered lines come first: the new process needs them for its state, and does not answer them again.
        lines = [*sorted(answered), *((number, self._open_lines[number]) for number in numbers)]
        new_numbers = {number: position for position, (number, _) in enumerate(lines, 1)}
        self._kept_lines = {
            key: (new_numbers[number], line) for key, (number, line) in self._kept_lines.items()
        }
        self._unanswered_kept = {new_numbers[number] for number in self._unanswered_kept}
        self._open_lines = {position: line for position, (_, line) in enumerate(lines, 1)}
        self._line_count, self._replayed_count = len(lines), len(answered)
        self._to_process.clear()
        # The last part is a line that the client has not completed: its rest follows as input.
        self._send(b"".join(line for _, line in lines) + self._partial_line)
        if self._input_ended and not self._to_process:
            self._end_requests()
        return True


def _parse_line(line: bytes) -> object:
    """Return the message or messages of a line, or None if it is not JSON."""
    import json

    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_repeatable(message: object) -> bool:
    """Return whether it is a request that changes nothing, even if it was carried out before."""
    if not isinstance(message, dict):
        return False
    body: dict[str, object] = message  # pyright: ignore[reportUnknownVariableType]
    return "id" in body and body.get("method", "tools/call") != "tools/call"


def _find_request_ids(message: object) -> list[object]:
    messages: list[object] = message if isinstance(message, list) else [message]  # pyright: ignore[reportUnknownVariableType]
    return [each["id"] for each in messages if isinstance(each, dict) and {"id", "method"} <= each.keys()]


def _build_error(id: object, cause: object = None) -> bytes:
    """Return the answer to a request whose outcome is unknown; with ``cause``, to one not carried out."""
    import json

    if cause is None:
        text = "Toolyard's background process ended before it answered; the outcome is unknown"
        data = {"kind": "outcome_unknown", "hint": "check what was done, then try again"}
    else:
        text = f"Toolyard's background process ended, and this request was not carried out: {cause}"
        data = {"kind": "unreachable", "hint": "start this MCP server again"}
    error = {"code": _INTERNAL_ERROR, "message": text, "data": data}
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode() + b"\n"
