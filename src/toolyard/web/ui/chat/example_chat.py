"""Example chat that contains every kind of event, for the page of all UI parts and for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolyard.types import chat as events

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

    def __call__(self, data: events.EventData, part: str = "") -> events.ChatEvent:
        self._seq += 1
        if isinstance(data, events.UserMessage | events.ManualCall):
            self._turn = self._seq
        event = events.NewChatEvent.from_data(data, part)
        at = self._at + self._seq
        return events.ChatEvent(EXAMPLE_CHAT_ID, self._seq, self._turn, event.kind, at, event.body, part)


def example_events(at: float) -> Iterator[events.ChatEvent]:
    """Yield the events of the example chat, one second apart, starting at a timestamp."""
    log = _EventFactory(at)
    yield from _build_completed_turn(log)
    yield from _build_retried_turn(log)
    yield from _build_manual_turn(log)
    yield from _build_waiting_turn(log)


def _build_completed_turn(log: _EventFactory) -> Iterator[events.ChatEvent]:
    """Yield a completed turn with reasoning, two calls, an image and an answer."""
    yield log(events.UserMessage("How busy was my week?\nDraw it, please.", "fast"))
    thoughts = "I need the calendar first. Then a chart says more than a table."
    yield log(events.ModelMessage("Let me look.", thoughts, "fast-1", 2), "step-1")
    yield log(events.ModelUsage(1204, 58, 900, "0.0011"))
    yield _build_call(
        log, "1", "playground_chart", "Draw a chart", values=[3, 5, 8, 4, 9, 6, 2], colour="green"
    )
    yield _build_call(log, "2", "view_file", "", "Toolyard", native=True, path="week.md")
    yield _build_result(
        log, "1", "7 bars, the highest is 9.", 0.02, media=(events.ResultMedia("image", "image/png", 1834),)
    )
    yield _build_result(log, "2", "# Week\n\nToo much.\n" * 40, 0.004, length=5_242_880)
    yield log(events.ModelMessage(_ANSWER_MARKDOWN, "", "fast-1"), "step-2")
    yield log(events.ModelUsage(2311, 214, 1200, "0.0034"))
    yield log(events.TurnEnd("done", seconds=4.2))


def _build_retried_turn(log: _EventFactory) -> Iterator[events.ChatEvent]:
    """Yield a failed turn, and its retry, which is interrupted."""
    first = log(events.UserMessage("And the week before?", "fast"))
    yield first
    yield log(events.TurnEnd("failed", "The provider responded with 429.", "Try again in a minute.", 0.8))
    yield log(events.UserMessage("And the week before?", "fast", again=first.seq))
    yield log(events.Note("GitHub can’t be reached, so its tools are missing.", "Check its page."))
    yield log(
        events.Note(
            "The model finds tools by search: 210 tools need 41,000 tokens.",
            topic=events.NoteTopic.META_TOOLS,
        )
    )
    yield _build_call(log, "3", "mcp_github__list_issues", "", "GitHub", state="open")
    yield _build_result(
        log, "3", "MCP server unreachable", 0.4, ok=False, cause="The sign-in expired.", reconnect="i-1"
    )
    yield log(events.ModelMessage(f"{_HOSTILE_TEXT}\n\nThe week before was", "", "fast-1"), "step-1")
    yield log(events.TurnEnd("interrupted", seconds=2.0))


def _build_manual_turn(log: _EventFactory) -> Iterator[events.ChatEvent]:
    """Yield a turn in which the person ran a tool."""
    yield log(events.ManualCall("demo_weekday", {"date": "2026-07-28"}))
    yield _build_call(log, "4", "demo_weekday", "", "Demo", date="2026-07-28")
    yield _build_result(log, "4", '{"date": "2026-07-28", "weekday": "Tuesday"}', 0.01)
    yield log(events.TurnEnd("done", seconds=0.1))


def _build_waiting_turn(log: _EventFactory) -> Iterator[events.ChatEvent]:
    """Yield a running turn whose calls make progress, need approval and ask questions."""
    yield log(events.UserMessage("Note it, greet the team and count.", "fast"))
    yield log(events.ReasoningDelta("Three things at once …"), "step-1")
    yield log(events.TextDelta("I will do **all three"), "step-1")
    yield _build_call(log, "5", "demo_count", "", "Demo", to=8)
    yield log(events.CallProgress("5", 5, 8, "5 of 8"), "5")
    yield _build_call(log, "6", "playground_note", "Save a note", text="Too much on Friday")
    yield log(events.ApprovalRequest("6", "a-1", _APPROVAL_REASON))
    yield _build_call(log, "7", "playground_greet", "Greet someone")
    yield log(
        events.Question("1", "7", "Playground", "form", "Who should be greeted, and how?", _QUESTION_SCHEMA)
    )
    yield _build_call(log, "8", "docs_summary", "", "Library docs", page="retries")
    request = "Summarise this page in two sentences: …"
    yield log(events.Question("2", "8", "Playground", "sampling", request=request))
    url = "https://example.org/confirm?id=1"
    yield log(events.Question("3", None, "Playground", "url", "Please confirm in your browser.", url=url))
    yield _build_call(log, "9", "demo_forget", "", "Demo")
    yield log(events.ApprovalRequest("9", "a-2", _APPROVAL_REASON))
    yield log(events.ApprovalAnswer("9", "a-2", False, unattended=True))
    yield _build_result(
        log, "9", "the call was refused: it needs approval, and nobody is here to give it", 0.0, ok=False
    )


def _build_call(
    log: _EventFactory,
    id_: str,
    name: str,
    title: str,
    server: str = "Playground",
    native: bool = False,
    **arguments: Any,
) -> events.ChatEvent:
    return log(events.CallRequest(id_, name, f"x/{name}", server, native, title, arguments))


def _build_result(
    log: _EventFactory,
    id_: str,
    text: str,
    seconds: float,
    *,
    ok: bool = True,
    length: int | None = None,
    **more: Any,
) -> events.ChatEvent:
    return log(events.CallResult(id_, ok, text, length or len(text), seconds=seconds, **more), id_)
