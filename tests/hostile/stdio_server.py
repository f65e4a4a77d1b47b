"""A child that misbehaves in one way, chosen by its first argument; in all else it is a proper server.

``stdio_server.py MODE [--modern] [--journal FILE] [--seconds N]``. The journal gets one JSON line for
each start (``{"start": pid}``), each message that came in, each process of its own and each end of input.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("mode")
parser.add_argument("--modern", action="store_true")
parser.add_argument("--journal")
parser.add_argument("--seconds", type=float, default=4.0)
parser.add_argument("--hold-output", action="store_true")

MODES: dict[str, type[Proper]] = {}
OUT = sys.stdout.buffer
SCHEMA = {"type": "object"}
LOCK = threading.Lock()


class Proper:
    """Answers as it should. Every mode is this with one thing changed."""

    def __init_subclass__(cls) -> None:
        words = "".join(f"-{c.lower()}" if c.isupper() else c for c in cls.__name__)
        MODES[words.lstrip("-")] = cls

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.asked = 1000
        self.answers: dict[int, dict[str, Any]] = {}

    def note(self, **fields: Any) -> None:
        if self.options.journal:
            fd = os.open(self.options.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(fd, json.dumps(fields).encode() + b"\n")
            os.close(fd)

    def run(self) -> None:
        self.note(start=os.getpid())
        for line in iter(sys.stdin.buffer.readline, b""):
            self.line(line)
        self.note(eof=True)

    def line(self, line: bytes) -> None:
        message = json.loads(line)
        self.note(message=message if len(line) < 10_000 else {"long": len(line)})
        self.message(message)

    def message(self, message: dict[str, Any]) -> None:
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None or id is None:
            return
        if method == "server/discover" and self.options.modern:
            offer = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            self.answer(id, {"resultType": "complete", "serverInfo": {"name": "hostile"}, **offer})
        elif method == "initialize" and not self.options.modern:
            offer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            self.answer(id, {"serverInfo": {"name": "hostile", "version": "1"}, **offer})
        elif method == "tools/list":
            self.list(id, params)
        elif method == "tools/call":
            self.call(id, params.get("name"), params.get("arguments") or {}, params.get("_meta") or {})
        else:
            self.send({"id": id, "error": {"code": -32601, "message": f"no such method: {method}"}})

    def list(self, id: Any, params: dict[str, Any]) -> None:
        self.answer(id, {"tools": [{"name": "echo", "inputSchema": SCHEMA}]})

    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        if tool == "wait":
            return
        if tool == "pid":
            self.text(id, str(os.getpid()))
        elif tool == "exit":
            sys.exit(arguments.get("code", 7))
        elif tool == "steps":
            threading.Thread(target=self.steps, args=(id, arguments, meta), daemon=True).start()
        else:
            self.text(id, str(arguments.get("text", "")) * arguments.get("times", 1))

    def steps(self, id: Any, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        for step in range(arguments["count"]):
            time.sleep(arguments["every"])
            progress = {"progressToken": meta.get("progressToken"), "progress": step + 1}
            self.send({"method": "notifications/progress", "params": progress})
        self.text(id, "done")

    def text(self, id: Any, text: str) -> None:
        self.answer(id, {"content": [{"type": "text", "text": text}]})

    def answer(self, id: Any, result: Any) -> None:
        self.send({"id": id, "result": result})

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        with LOCK:
            OUT.write(data)
            OUT.flush()

    def start(self, *, own_session: bool, hold_output: bool = False) -> None:
        """A process of our own that does not end by itself, nor when asked to."""
        program = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=None if hold_output else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=own_session,
        )
        self.note(process=child.pid, own_session=own_session)


class Good(Proper):
    pass


class Cat(Proper):
    def line(self, line: bytes) -> None:
        self.write(line)


class ExitAtStart(Proper):
    def run(self) -> None:
        self.note(start=os.getpid())
        sys.stderr.write("loading\ncannot open the database\n\n")
        sys.exit(3)


class KilledAtStart(Proper):
    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class ExitOnProbe(Proper):
    def message(self, message: dict[str, Any]) -> None:
        if message.get("method") == "server/discover":
            sys.exit(1)
        super().message(message)


NOISE = (
    b"\x1b[32mStarting server...\x1b[0m\n",
    b'{"level": "info", "msg": \n',
    b"[not json\n",
    b"null\n",
    b"42\n",
    b'"text"\n',
    b"\n",
    b"\xff\xfe\x00broken utf-8\n",
    b"[]\n",
    b"[1, null]\n",
    b'{"jsonrpc": "2.0"}\n',
    b'{"jsonrpc": "2.0", "method": 5}\n',
    b'{"jsonrpc": "2.0", "method": "x", "params": [1]}\n',
    b'{"id": {"a": 1}, "result": {}}\n',
    b"[" * 100_000 + b"\n",
    b'{"id": 1' + b"0" * 5000 + b', "result": {}}\n',
)


class NoiseBetween(Proper):
    def send(self, message: dict[str, Any]) -> None:
        self.write(b"".join(NOISE))
        super().send(message)
        self.write(b"".join(NOISE))


class LargeNoise(Proper):
    """Megabytes that are no message, and a message behind as much white space."""

    def send(self, message: dict[str, Any]) -> None:
        for start in (b"loading ", b" ", b'{"id": ', b"\xef\xbb\xbf"):
            self.write(start + b" " * 17_000_000 + b"\n")
        self.write(b" " * 17_000_000 + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


class ValueBomb(Proper):
    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        many = b",".join([b"[]"] * 1_000_000)
        self.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[%b]}}\n' % (id, many))


class OnlyNoise(Proper):
    def line(self, line: bytes) -> None:
        self.write(b"Server listening on port 3000\n")


class Silent(Proper):
    def line(self, line: bytes) -> None:
        pass


class Binary(Proper):
    def line(self, line: bytes) -> None:
        self.write(b"\x16\x03\x01\x02\x00" + bytes(range(11, 256)) * 40)


class HttpBytes(Proper):
    def line(self, line: bytes) -> None:
        self.write(b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nno\n")


class ContentLength(Proper):
    """Speaks JSON-RPC in the framing of language servers."""

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))


class Crlf(Proper):
    def write(self, data: bytes) -> None:
        super().write(data.replace(b"\n", b"\r\n"))


class StringIds(Proper):
    def send(self, message: dict[str, Any]) -> None:
        super().send({**message, "id": str(message["id"])} if "id" in message else message)


class BigLine(Proper):
    """``size`` bytes in one line; the id stands first, or last."""

    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        if "size" not in arguments:
            super().call(id, tool, arguments, meta)
            return
        result = {"content": [{"type": "text", "text": "x" * arguments["size"]}]}
        ends = {"result": result, "id": id} if arguments.get("id_last") else {"id": id, "result": result}
        self.write(json.dumps({"jsonrpc": "2.0", **ends}).encode() + b"\n")


class Unreadable(Proper):
    """Answers a call with the ``line`` in its arguments, whatever it is, and the id where # stands."""

    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        if "line" not in arguments:
            super().call(id, tool, arguments, meta)
            return
        self.write(arguments["line"].replace("#", str(id)).encode() + b"\n")


class RepeatedCursor(Proper):
    def list(self, id: Any, params: dict[str, Any]) -> None:
        self.answer(id, {"tools": [{"name": "echo", "inputSchema": SCHEMA}], "nextCursor": "again"})


class EndlessCursors(Proper):
    def list(self, id: Any, params: dict[str, Any]) -> None:
        page = int(params.get("cursor", "0"))
        self.answer(id, {"tools": [{"name": f"t{page}", "inputSchema": SCHEMA}], "nextCursor": str(page + 1)})


class ManyTools(Proper):
    def list(self, id: Any, params: dict[str, Any]) -> None:
        words = "Says again what it was told, as often as you like. " * 4
        tools = [{"name": f"tool_{n}", "description": words, "inputSchema": SCHEMA} for n in range(10_000)]
        self.answer(id, {"tools": tools})


class DiesInCall(Proper):
    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        sys.stderr.write("Traceback (most recent call last):\nMemoryError: no more\n")
        sys.stderr.flush()
        os._exit(9)


class HalfMessage(Proper):
    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        self.write(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"ty' % id)
        os._exit(0)


class WholeMessageThenExit(Proper):
    """The answer without its line feed, then the end."""

    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": []}}).encode())
        os._exit(0)


class ClosesOutputAtStart(Proper):
    def run(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        super().run()


class ClosesOutputInCall(Proper):
    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class ClosesInput(Proper):
    """Reads one call, then closes its input and lives on."""

    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        os.close(0)
        super().call(id, tool, arguments, meta)
        signal.pause()


class ExitsButOutputIsHeld(Proper):
    """Its child keeps the output open, so that it never ends."""

    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        self.start(own_session=False, hold_output=True)
        os._exit(4)


class Stubborn(Proper):
    """Stays when its input ends and when it is told to go."""

    def run(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().run()
        while True:
            signal.pause()


class StubbornAndSilent(Stubborn):
    def line(self, line: bytes) -> None:
        pass

    def run(self) -> None:
        self.start(own_session=True)
        super().run()


class Family(Proper):
    """Has one child in its process group and one that left it."""

    def run(self) -> None:
        self.start(own_session=False)
        self.start(own_session=True)
        super().run()


class StderrFlood(Proper):
    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        for number in range(50_000):
            sys.stderr.write(f"line {number} of very many that nobody reads\n")
        sys.stderr.write("x" * 1_000_000 + "\nthe last line\n")
        sys.stderr.flush()
        super().call(id, tool, arguments, meta)


class NotificationFlood(Proper):
    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        log = {"method": "notifications/message", "params": {"level": "info", "data": "again"}}
        self.write((json.dumps({"jsonrpc": "2.0", **log}) + "\n").encode() * 20_000)
        super().call(id, tool, arguments, meta)


class Twice(Proper):
    def send(self, message: dict[str, Any]) -> None:
        super().send(message)
        super().send({**message, "result": {"content": [{"type": "text", "text": "second"}]}})


class UnknownIds(Proper):
    def send(self, message: dict[str, Any]) -> None:
        for id in (99_999, "abc", None, -1, True, 1.5, [1]):
            super().send({"id": id, "result": {"content": []}})
        super().send({"method": "notifications/progress", "params": {"progressToken": 4711, "progress": 1}})
        super().send({"method": "notifications/cancelled", "params": {"requestId": 4711}})
        super().send(message)


class VerbatimReplies(Proper):
    """Answers a call with exactly the message in its arguments, and the right id."""

    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        if "message" in arguments:
            self.send({"id": id, **arguments["message"]})
        else:
            super().call(id, tool, arguments, meta)

    def list(self, id: Any, params: dict[str, Any]) -> None:
        self.answer(id, {"tools": "none"})


class RawEcho(VerbatimReplies):
    """The same, with a list of tools as it should be."""

    def list(self, id: Any, params: dict[str, Any]) -> None:
        Proper.list(self, id, params)


class StepsTool(Proper):
    def list(self, id: Any, params: dict[str, Any]) -> None:
        self.answer(id, {"tools": [{"name": name, "inputSchema": SCHEMA} for name in ("echo", "steps")]})


class WrongHandshake(Proper):
    def message(self, message: dict[str, Any]) -> None:
        if message.get("method") == "initialize":
            self.answer(message["id"], {"protocolVersion": "1999-01-01", "capabilities": {}})
        elif "id" in message:
            super().message(message)


class SlowStart(Proper):
    def run(self) -> None:
        time.sleep(self.options.seconds)
        super().run()


class Deaf(Proper):
    """Reads no more once it is asked for a call."""

    def message(self, message: dict[str, Any]) -> None:
        super().message(message)
        if message.get("method") == "tools/list":
            signal.pause()


class Asks(Proper):
    """Asks four things during a call, and answers with what it was told."""

    QUESTIONS = ("ping", "elicitation/create", "roots/list", "sampling/createMessage")

    def message(self, message: dict[str, Any]) -> None:
        if message.get("method") is None and message.get("id") in self.answers:
            self.answers[message["id"]] = message
            if all(self.answers.values()):
                question_answers = {
                    QUESTION: self.answers[n] for n, QUESTION in enumerate(self.QUESTIONS, 500)
                }
                self.text(self.asked, json.dumps(question_answers))
            return
        super().message(message)

    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        self.asked = id
        self.answers = {500 + n: {} for n in range(len(self.QUESTIONS))}
        for n, question in enumerate(self.QUESTIONS, 500):
            self.send({"id": n, "method": question, "params": {"message": "Who are you?"}})


class CrashesWhenReady(Proper):
    """Works until it is called, or until ``--seconds`` have passed."""

    def message(self, message: dict[str, Any]) -> None:
        super().message(message)
        if message.get("method") == "notifications/initialized":
            sys.stderr.write("lost the licence server\n")
            sys.stderr.flush()
            os._exit(5)


class CrashesOnce(Proper):
    """The first of its kind dies in its first call; later ones work."""

    def call(self, id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
        starts = Path(self.options.journal).read_text().count('"start"')
        if starts == 1:
            os._exit(6)
        super().call(id, tool, arguments, meta)


if __name__ == "__main__":
    chosen = parser.parse_args()
    if chosen.mode not in MODES:
        parser.error(f"there is no mode {chosen.mode}")
    MODES[chosen.mode](chosen).run()
