"""Example chat that contains every kind of event, for the page of all UI parts and for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolyard.types.chat import ChatEvent, Kind

__all__ = ["EXAMPLE_CHAT_ID", "example_events"]

EXAMPLE_CHAT_ID = "example"
"""Id of the example chat, which is not stored."""

_ANSWER_MARKDOWN = """The week was **busy**: 37 tasks, most of them on *Friday*.

## What to do next

1. Move two meetings to Monday
2. Read the notes in `week.md`
   - those of the team
   - and yours

```python
def busy(days: list[int]) -> float:
    \"\"\"How busy a week is.\"\"\"
    return sum(days) / 7  # an average
```

| day | tasks | done |
|:----|------:|:----:|
| Thursday | 4 | yes |
| Friday | 9 | no |

> See https://example.org/calendar, or the [handbook](https://example.org/handbook).
"""
_HOSTILE_TEXT = (
    "Text of others is inert: <script>alert(1)</script>, [a link](javascript:alert(1)), "
    "![a picture](https://example.org/track.png) and \u202ereversed\u202c."
)
_APPROVAL_REASON = "This tool can change data, so your approval is needed."
_QUESTION_SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "language": {"type": "string", "title": "Language", "enum": ["English", "Norsk"]},
        "also": {"type": "array", "title": "Also greet", "items": {"type": "string"}},
    },
}


class _EventFactory:
    def __init__(self, at: float) -> None:
        self._at, self._seq, self._turn = at, 0, 0

    def __call__(self, kind: Kind, part: str = "", /, **body: Any) -> ChatEvent:
        self._seq += 1
        if kind in (Kind.USER, Kind.RUN):
            self._turn = self._seq
        return ChatEvent(EXAMPLE_CHAT_ID, self._seq, self._turn, kind, self._at + self._seq, body, part)


def example_events(at: float) -> Iterator[ChatEvent]:
    """Yield the events of the example chat, one second apart, starting at a timestamp."""
    log = _EventFactory(at)
    yield from _build_completed_turn(log)
    yield from _build_retried_turn(log)
    yield from _build_manual_turn(log)
    yield from _build_waiting_turn(log)


def _build_completed_turn(log: _EventFactory) -> Iterator[ChatEvent]:
    """Yield a completed turn with reasoning, two calls, an image and an answer."""
    yield log(Kind.USER, text="How busy was my week?\nDraw it, please.", model="fast", agent=None, again=None)
    thoughts = "I need the calendar first. Then a chart says more than a table."
    yield log(Kind.MODEL_MESSAGE, "step-1", text="Let me look.", reasoning=thoughts, model="fast-1", calls=2)
    yield log(Kind.USAGE, input=1204, output=58, cached=900, cost="0.0011")
    yield _build_call(
        log, "1", "playground_chart", "Draw a chart", values=[3, 5, 8, 4, 9, 6, 2], colour="green"
    )
    yield _build_call(log, "2", "view_file", "", "Toolyard", native=True, path="week.md")
    yield _build_result(log, "1", "7 bars, the highest is 9.", 0.02, media=[("image", "image/png", 1834)])
    yield _build_result(log, "2", "# Week\n\nToo much.\n" * 40, 0.004, length=5_242_880)
    yield log(Kind.MODEL_MESSAGE, "step-2", text=_ANSWER_MARKDOWN, reasoning="", model="fast-1", calls=0)
    yield log(Kind.USAGE, input=2311, output=214, cached=1200, cost="0.0034")
    yield log(Kind.END, why="done", error=None, hint=None, seconds=4.2)


def _build_retried_turn(log: _EventFactory) -> Iterator[ChatEvent]:
    """Yield a failed turn, and its retry, which is interrupted."""
    first = log(Kind.USER, text="And the week before?", model="fast", agent=None, again=None)
    yield first
    yield log(
        Kind.END,
        why="failed",
        error="The provider responded with 429.",
        hint="Try again in a minute.",
        seconds=0.8,
    )
    yield log(Kind.USER, text="And the week before?", model="fast", agent=None, again=first.seq)
    yield log(Kind.NOTE, text="GitHub can’t be reached, so its tools are missing.", hint="Check its page.")
    yield _build_call(log, "3", "mcp_github__list_issues", "", "GitHub", state="open")
    yield _build_result(
        log, "3", "MCP server unreachable", 0.4, ok=False, cause="The sign-in expired.", reconnect="i-1"
    )
    yield log(
        Kind.MODEL_MESSAGE,
        "step-1",
        text=f"{_HOSTILE_TEXT}\n\nThe week before was",
        reasoning="",
        model="fast-1",
        calls=0,
    )
    yield log(Kind.END, why="interrupted", error=None, hint=None, seconds=2.0)


def _build_manual_turn(log: _EventFactory) -> Iterator[ChatEvent]:
    """Yield a turn in which the person ran a tool."""
    yield log(Kind.RUN, name="demo_weekday", arguments={"date": "2026-07-28"}, again=None)
    yield _build_call(log, "4", "demo_weekday", "", "Demo", date="2026-07-28")
    yield _build_result(log, "4", '{"date": "2026-07-28", "weekday": "Tuesday"}', 0.01)
    yield log(Kind.END, why="done", error=None, hint=None, seconds=0.1)


def _build_waiting_turn(log: _EventFactory) -> Iterator[ChatEvent]:
    """Yield a running turn whose calls make progress, need approval and ask questions."""
    yield log(Kind.USER, text="Note it, greet the team and count.", model="fast", agent=None, again=None)
    yield log(Kind.REASONING, "step-1", delta="Three things at once …")
    yield log(Kind.TEXT, "step-1", delta="I will do **all three")
    yield _build_call(log, "5", "demo_count", "", "Demo", to=8)
    yield log(Kind.PROGRESS, "5", id="5", progress=5, total=8, message="5 of 8")
    yield _build_call(log, "6", "playground_note", "Save a note", text="Too much on Friday")
    yield log(
        Kind.APPROVAL_REQUEST,
        id="6",
        approval="a-1",
        reason=_APPROVAL_REASON,
    )
    yield _build_call(log, "7", "playground_greet", "Greet someone")
    yield _build_question(log, "1", "7", "form", "Who should be greeted, and how?", schema=_QUESTION_SCHEMA)
    yield _build_call(log, "8", "docs_summary", "", "Library docs", page="retries")
    yield _build_question(log, "2", "8", "sampling", "", request="Summarise this page in two sentences: …")
    yield _build_question(
        log, "3", None, "url", "Please confirm in your browser.", url="https://example.org/confirm?id=1"
    )
    yield _build_call(log, "9", "demo_forget", "", "Demo")
    yield log(
        Kind.APPROVAL_REQUEST,
        id="9",
        approval="a-2",
        reason=_APPROVAL_REASON,
    )
    yield log(Kind.APPROVAL_ANSWER, id="9", approval="a-2", yes=False, remembered=None)
    yield _build_result(log, "9", "You declined this call.", 0.0, ok=False)


def _build_call(
    log: _EventFactory,
    id_: str,
    name: str,
    title: str,
    server: str = "Playground",
    native: bool = False,
    **arguments: Any,
) -> ChatEvent:
    body = {"id": id_, "name": name, "tool": f"x/{name}", "server": server, "native": native, "title": title}
    return log(Kind.CALL, **body, arguments=arguments)


def _build_result(
    log: _EventFactory,
    id_: str,
    text: str,
    seconds: float,
    *,
    ok: bool = True,
    length: int | None = None,
    media: list[tuple[str, str, int]] | None = None,
    cause: str | None = None,
    reconnect: str | None = None,
) -> ChatEvent:
    listed = [{"kind": kind, "mime": mime, "size": size} for kind, mime, size in media or ()]
    body = {
        "id": id_,
        "ok": ok,
        "text": text,
        "length": length or len(text),
        "cause": cause,
        "seconds": seconds,
    }
    return log(Kind.RESULT, id_, **body, media=listed, handle=None, reconnect=reconnect)


def _build_question(
    log: _EventFactory, id_: str, call: str | None, kind: str, message: str, **more: Any
) -> ChatEvent:
    body: dict[str, Any] = {"schema": None, "url": None, "request": None, **more}
    return log(
        Kind.QUESTION,
        **{"id": id_, "call": call, "server": "Playground", "kind": kind, "message": message, **body},
    )
