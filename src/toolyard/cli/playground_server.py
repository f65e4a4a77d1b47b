"""A second small MCP server to try Toolyard with: a form with parts in parts, a picture, a question, a note.

``python -m toolyard.cli.playground_server``; it speaks like the demo server, of which it is made.
"""

from __future__ import annotations

import base64
import datetime
import json
import struct
import threading
import zlib
from collections.abc import Callable
from typing import cast

from toolyard.cli.demo_server import READS, Json, Server, json_object, schema, serve, text_result

__all__ = ["Playground", "bars", "main"]

_COLOURS = {"blue": (36, 87, 176), "green": (23, 130, 80), "red": (190, 60, 50)}
_INFO = {"name": "toolyard-playground", "title": "Toolyard playground", "version": "1.0.0"}
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_WHO = "who"
"""The name of the question that ``greet`` asks."""


def _list(items: Json, description: str) -> Json:
    return {"type": "array", "items": items, "description": description}


_STOP = schema(
    ["city", "nights"],
    city={"type": "string"},
    nights={"type": "integer", "minimum": 0, "maximum": 60},
    by={"enum": ["train", "boat", "bicycle"], "default": "train", "description": "How to get there"},
)
_STAY: Json = {
    "description": "Where to sleep",
    "oneOf": [
        {
            **schema(["kind"], kind={"const": "hotel"}, stars={"type": "integer", "default": 3}),
            "title": "Hotel",
        },
        {**schema(["kind"], kind={"const": "tent"}, fire={"type": "boolean"}), "title": "Tent"},
    ],
}
_FORM = schema(
    ["name"],
    name={"type": "string", "title": "Your name"},
    language={
        "title": "Language",
        "oneOf": [
            {"const": word, "title": title}
            for word, title in (("en", "English"), ("no", "Norsk"), ("de", "Deutsch"))
        ],
        "default": "en",
    },
)
_HELLO = {"en": "Hello", "no": "Hei", "de": "Hallo"}


_TOOLS: list[Json] = [
    {
        "name": "plan_trip",
        "title": "Plan a trip",
        "description": "Put a trip together: who comes along, from stop to stop, and where to sleep.",
        "inputSchema": schema(
            ["start", "stops"],
            start={"type": "string", "format": "date", "description": "The day of departure"},
            stops=_list(_STOP, "In the order in which you come there"),
            travellers=_list(
                schema(["name"], name={"type": "string"}, vegetarian={"type": "boolean"}), "Who comes along"
            ),
            stay=_STAY,
            interests=_list({"enum": ["food", "museums", "mountains", "music"]}, "What you like"),
        ),
        "annotations": READS,
    },
    {
        "name": "chart",
        "title": "Draw a chart",
        "description": "Draw bars, as a picture.",
        "inputSchema": schema(
            ["values"],
            values={**_list({"type": "number"}, "How high each bar is"), "default": [3, 5, 8, 4, 9, 6]},
            colour={"enum": list(_COLOURS), "default": "blue"},
        ),
        "annotations": READS,
    },
    {
        "name": "greet",
        "title": "Greet somebody",
        "description": "Ask who you are, and say hello.",
        "inputSchema": schema([]),
        "annotations": READS,
    },
    {
        "name": "note",
        "title": "Keep a note",
        "description": "Keep a note for as long as this server runs. Says of itself that it writes.",
        "inputSchema": schema(["text"], text={"type": "string", "description": "What to remember"}),
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
    },
]


class Playground(Server):
    """One conversation, and the notes that were made in it."""

    tools = _TOOLS
    info = _INFO
    instructions = "Tools to try Toolyard with. Notes are kept until this server ends; nothing else changes."

    def __init__(self, write: Callable[[Json], None], *, legacy: bool = False) -> None:
        super().__init__(write, legacy=legacy)
        self._asked: dict[object, tuple[threading.Event, Json]] = {}
        """Questions to a client of the older era, by their ids, and what came back."""
        self._asks = False
        """Whether such a client can be asked something."""
        self._notes: list[str] = []

    def receive(self, message: object) -> None:
        """Take in one message; it may answer a question of ours."""
        came = json_object(message)
        if "method" not in came and (waiting := self._asked.get(came.get("id"))) is not None:
            waiting[1].update(json_object(came.get("result")))
            waiting[0].set()
            return
        if came.get("method") == "initialize":
            self._asks = "elicitation" in json_object(json_object(came.get("params")).get("capabilities"))
        super().receive(message)

    def call(self, params: Json, stop: threading.Event, modern: bool) -> Json:
        """Call a tool."""
        arguments = json_object(params.get("arguments"))
        match params.get("name"):
            case "plan_trip":
                return _trip(arguments)
            case "chart":
                return _chart(arguments)
            case "greet":
                return self._greet(params, stop, modern)
            case "note":
                self._notes.append(str(arguments.get("text", ""))[:1000])
                return text_result("Notes so far:\n" + "\n".join(f"- {each}" for each in self._notes))
            case _:
                return super().call(params, stop, modern)

    def _greet(self, params: Json, stop: threading.Event, modern: bool) -> Json:
        question = {"mode": "form", "message": "Who shall be greeted, and how?", "requestedSchema": _FORM}
        if not modern:
            return _hello(self._ask("elicitation/create", question, stop) if self._asks else {})
        answers = params.get("inputResponses")
        if answers is not None:
            return _hello(json_object(json_object(answers).get(_WHO)))
        offered = json_object(json_object(params.get("_meta")).get(_CAPABILITIES))
        if "elicitation" not in offered:
            return _hello({})
        asked = {"method": "elicitation/create", "params": question}
        return {"resultType": "input_required", "inputRequests": {_WHO: asked}}

    def _ask(self, method: str, params: Json, stop: threading.Event) -> Json:
        """Ask a client of the older era, and wait until it answers or the call is cancelled."""
        id_ = f"ask-{len(self._asked)}-{id(stop)}"
        came, answer = self._asked[id_] = (threading.Event(), {})
        self.send({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})
        while not came.wait(0.1) and not stop.is_set():
            pass
        del self._asked[id_]
        return answer


def _hello(answer: Json) -> Json:
    content = json_object(answer.get("content"))
    if answer.get("action") not in (None, "accept"):
        return text_result("Then nobody is greeted.")
    word = _HELLO.get(str(content.get("language")), _HELLO["en"])
    return text_result(f"{word}, {str(content.get('name') or 'whoever you are')[:100]}!")


def _trip(arguments: Json) -> Json:
    try:
        day = datetime.date.fromisoformat(str(arguments.get("start")))
    except ValueError:
        return text_result("'start' must be a date such as 2026-07-28.", error=True)
    stops = arguments.get("stops")
    plan: list[Json] = []
    for stop in map(json_object, cast("list[object]", stops) if isinstance(stops, list) else []):
        nights = stop.get("nights")
        nights = nights if isinstance(nights, int) and 0 <= nights <= 60 else 1
        leave = day + datetime.timedelta(days=nights)
        plan.append(
            {"city": stop.get("city"), "by": stop.get("by", "train"), "from": str(day), "to": str(leave)}
        )
        day = leave
    if not plan:
        return text_result("'stops' must have at least one stop.", error=True)
    others = {name: arguments[name] for name in ("travellers", "stay", "interests") if name in arguments}
    trip: Json = {"stops": plan, "home": str(day), **others}
    return {**text_result(json.dumps(trip, indent=2, ensure_ascii=False)), "structuredContent": trip}


def _chart(arguments: Json) -> Json:
    given = arguments.get("values")
    values = (
        [each for each in cast("list[object]", given) if isinstance(each, int | float)]
        if isinstance(given, list)
        else []
    )
    if not values or len(values) > 40 or not all(0 <= each <= 1e9 for each in values):
        return text_result("'values' must be 1 to 40 numbers that are not negative.", error=True)
    colour = _COLOURS.get(str(arguments.get("colour", "blue")), _COLOURS["blue"])
    picture = base64.b64encode(bars(values, colour)).decode()
    drawn = f"{len(values)} bars, the highest is {max(values):g}."
    return {
        "content": [
            *text_result(drawn)["content"],
            {"type": "image", "mimeType": "image/png", "data": picture},
        ]
    }


def bars(values: list[int | float], colour: tuple[int, int, int]) -> bytes:
    """A picture of bars: a PNG, 480 by 240 pixels."""
    width, height, slot, top = 480, 240, 456 // len(values), max(values) or 1
    white, base, bar = b"\xff\xff\xff", b"\xd8\xdd\xe4", bytes(colour)
    rows: list[bytes] = []
    for y in range(height):
        high = height - 20 - y
        line = bytearray((base if high == 0 else white) * width)
        for at, value in enumerate(values):
            left, right = 12 + at * slot + slot // 8, 12 + (at + 1) * slot - slot // 8
            if 0 < high <= value / top * (height - 40):
                line[left * 3 : right * 3] = bar * (right - left)
        rows.append(b"\0" + bytes(line))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"".join(rows), 9)) + chunk(b"IEND", b"")
    )


def main() -> None:
    """Be this server."""
    serve(Playground)


if __name__ == "__main__":
    main()
