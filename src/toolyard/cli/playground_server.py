"""A second small MCP server to try Toolyard with: nested form fields, a picture, a question, notes.

Run it with ``python -m toolyard.cli.playground_server``. It extends the demo server.
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

from toolyard.cli.demo_server import (
    READ_ONLY_ANNOTATIONS,
    DemoServer,
    JsonObject,
    json_object,
    object_schema,
    serve_stdio,
    text_result,
)

__all__ = ["PlaygroundServer", "draw_bar_chart", "main"]

_BAR_COLOURS = {"blue": (36, 87, 176), "green": (23, 130, 80), "red": (190, 60, 50)}
_SERVER_INFO = {"name": "toolyard-playground", "title": "Toolyard playground", "version": "1.0.0"}
_CLIENT_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_GREET_INPUT_NAME = "who"
"""Name of the question that ``greet`` asks."""


def _array_schema(items: JsonObject, description: str) -> JsonObject:
    return {"type": "array", "items": items, "description": description}


_STOP_SCHEMA = object_schema(
    ["city", "nights"],
    city={"type": "string"},
    nights={"type": "integer", "minimum": 0, "maximum": 60},
    by={"enum": ["train", "boat", "bicycle"], "default": "train", "description": "Means of transport"},
)
_STAY_SCHEMA: JsonObject = {
    "description": "Accommodation",
    "oneOf": [
        {
            **object_schema(["kind"], kind={"const": "hotel"}, stars={"type": "integer", "default": 3}),
            "title": "Hotel",
        },
        {**object_schema(["kind"], kind={"const": "tent"}, fire={"type": "boolean"}), "title": "Tent"},
    ],
}
_GREET_FORM_SCHEMA = object_schema(
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
_GREETINGS = {"en": "Hello", "no": "Hei", "de": "Hallo"}


_TOOLS: list[JsonObject] = [
    {
        "name": "plan_trip",
        "title": "Plan a trip",
        "description": "Plan a trip with stops, travellers and accommodation.",
        "inputSchema": object_schema(
            ["start", "stops"],
            start={"type": "string", "format": "date", "description": "Departure date"},
            stops=_array_schema(_STOP_SCHEMA, "Stops, in order"),
            travellers=_array_schema(
                object_schema(["name"], name={"type": "string"}, vegetarian={"type": "boolean"}),
                "Travellers",
            ),
            stay=_STAY_SCHEMA,
            interests=_array_schema({"enum": ["food", "museums", "mountains", "music"]}, "Interests"),
        ),
        "annotations": READ_ONLY_ANNOTATIONS,
    },
    {
        "name": "chart",
        "title": "Draw a chart",
        "description": "Draw a bar chart as an image.",
        "inputSchema": object_schema(
            ["values"],
            values={
                **_array_schema({"type": "number"}, "Height of each bar"),
                "default": [3, 5, 8, 4, 9, 6],
            },
            colour={"enum": list(_BAR_COLOURS), "default": "blue"},
        ),
        "annotations": READ_ONLY_ANNOTATIONS,
    },
    {
        "name": "greet",
        "title": "Greet someone",
        "description": "Ask for a name and reply with a greeting.",
        "inputSchema": object_schema([]),
        "annotations": READ_ONLY_ANNOTATIONS,
    },
    {
        "name": "note",
        "title": "Save a note",
        "description": "Store a note until this server stops. The tool is marked as changing data.",
        "inputSchema": object_schema(["text"], text={"type": "string", "description": "Text of the note"}),
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
    },
]


class PlaygroundServer(DemoServer):
    """One client, and the notes that it made."""

    tools = _TOOLS
    info = _SERVER_INFO
    instructions = (
        "Tools for trying out Toolyard. Notes are stored until this server stops; nothing else changes."
    )

    def __init__(self, write: Callable[[JsonObject], None], *, legacy: bool = False) -> None:
        super().__init__(write, legacy=legacy)
        self._pending_requests: dict[object, tuple[threading.Event, JsonObject]] = {}
        """Requests to a legacy client by id, with its responses."""
        self._has_elicitation = False
        """Whether a legacy client supports elicitation."""
        self._notes: list[str] = []

    def receive(self, message: object) -> None:
        """Handle one message, which may be the response to a question of ours."""
        came = json_object(message)
        if "method" not in came and (waiting := self._pending_requests.get(came.get("id"))) is not None:
            waiting[1].update(json_object(came.get("result")))
            waiting[0].set()
            return
        if came.get("method") == "initialize":
            self._has_elicitation = "elicitation" in json_object(
                json_object(came.get("params")).get("capabilities")
            )
        super().receive(message)

    def call(self, params: JsonObject, stop: threading.Event, modern: bool) -> JsonObject:
        """Call a tool."""
        arguments = json_object(params.get("arguments"))
        match params.get("name"):
            case "plan_trip":
                return _run_plan_trip(arguments)
            case "chart":
                return _run_chart(arguments)
            case "greet":
                return self._run_greet(params, stop, modern)
            case "note":
                self._notes.append(str(arguments.get("text", ""))[:1000])
                return text_result("Notes so far:\n" + "\n".join(f"- {each}" for each in self._notes))
            case _:
                return super().call(params, stop, modern)

    def _run_greet(self, params: JsonObject, stop: threading.Event, modern: bool) -> JsonObject:
        question = {
            "mode": "form",
            "message": "Who should be greeted, and how?",
            "requestedSchema": _GREET_FORM_SCHEMA,
        }
        if not modern:
            return _build_greeting(self._ask_client(question, stop) if self._has_elicitation else {})
        answers = params.get("inputResponses")
        if answers is not None:
            return _build_greeting(json_object(json_object(answers).get(_GREET_INPUT_NAME)))
        offered = json_object(json_object(params.get("_meta")).get(_CLIENT_CAPABILITIES_KEY))
        if "elicitation" not in offered:
            return _build_greeting({})
        asked = {"method": "elicitation/create", "params": question}
        return {"resultType": "input_required", "inputRequests": {_GREET_INPUT_NAME: asked}}

    def _ask_client(self, question: JsonObject, stop: threading.Event) -> JsonObject:
        """Ask a legacy client, and wait until it answers or the call is cancelled."""
        id_ = f"ask-{len(self._pending_requests)}-{id(stop)}"
        came, answer = self._pending_requests[id_] = (threading.Event(), {})
        self.send({"jsonrpc": "2.0", "id": id_, "method": "elicitation/create", "params": question})
        while not came.wait(0.1) and not stop.is_set():
            pass
        del self._pending_requests[id_]
        return answer


def _build_greeting(answer: JsonObject) -> JsonObject:
    content = json_object(answer.get("content"))
    if answer.get("action") not in (None, "accept"):
        return text_result("Nobody was greeted.")
    word = _GREETINGS.get(str(content.get("language")), _GREETINGS["en"])
    return text_result(f"{word}, {str(content.get('name') or 'stranger')[:100]}!")


def _run_plan_trip(arguments: JsonObject) -> JsonObject:
    try:
        day = datetime.date.fromisoformat(str(arguments.get("start")))
    except ValueError:
        return text_result("'start' must be a date such as 2026-07-28.", error=True)
    stops = arguments.get("stops")
    plan: list[JsonObject] = []
    for stop in map(json_object, cast("list[object]", stops) if isinstance(stops, list) else []):
        nights = stop.get("nights")
        nights = nights if isinstance(nights, int) and 0 <= nights <= 60 else 1
        leave = day + datetime.timedelta(days=nights)
        plan.append(
            {"city": stop.get("city"), "by": stop.get("by", "train"), "from": str(day), "to": str(leave)}
        )
        day = leave
    if not plan:
        return text_result("'stops' must contain at least one stop.", error=True)
    others = {name: arguments[name] for name in ("travellers", "stay", "interests") if name in arguments}
    trip: JsonObject = {"stops": plan, "home": str(day), **others}
    return {**text_result(json.dumps(trip, indent=2, ensure_ascii=False)), "structuredContent": trip}


def _run_chart(arguments: JsonObject) -> JsonObject:
    given = arguments.get("values")
    values = (
        [each for each in cast("list[object]", given) if isinstance(each, int | float)]
        if isinstance(given, list)
        else []
    )
    if not values or len(values) > 40 or not all(0 <= each <= 1e9 for each in values):
        return text_result("'values' must be 1 to 40 non-negative numbers.", error=True)
    colour = _BAR_COLOURS.get(str(arguments.get("colour", "blue")), _BAR_COLOURS["blue"])
    picture = base64.b64encode(draw_bar_chart(values, colour)).decode()
    drawn = f"{len(values)} bars, the highest is {max(values):g}."
    return {
        "content": [
            *text_result(drawn)["content"],
            {"type": "image", "mimeType": "image/png", "data": picture},
        ]
    }


def draw_bar_chart(values: list[int | float], colour: tuple[int, int, int]) -> bytes:
    """Draw a bar chart: a PNG of 480 by 240 pixels."""
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

    def make_chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = make_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + make_chunk(b"IDAT", zlib.compress(b"".join(rows), 9))
        + make_chunk(b"IEND", b"")
    )


def main() -> None:
    """Run the server."""
    serve_stdio(PlaygroundServer)


if __name__ == "__main__":
    main()
