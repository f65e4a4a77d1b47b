"""Chats as they could have been: whole logs of events, with the pieces that a database deletes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from toolyard.types.chat import TRANSIENT_KINDS, ChatEvent, Kind

CHAT = "chat-1"


@dataclass
class Log:
    """Events as they were appended, pieces too."""

    events: list[ChatEvent] = field(default_factory=list[ChatEvent])
    turn: int = 0

    def add(self, kind: Kind, part: str = "", /, **body: Any) -> ChatEvent:
        seq = len(self.events) + 1
        if kind in (Kind.USER, Kind.RUN):
            self.turn = seq
        event = ChatEvent(CHAT, seq, self.turn, kind, 1_790_000_000.0 + seq, body, part)
        self.events.append(event)
        return event

    def stored(self, length: int | None = None) -> list[ChatEvent]:
        """What a database has when so many events were appended: no pieces that another event replaced."""
        return select_stored_events(self.events[:length])


def select_stored_events(events: Sequence[ChatEvent]) -> list[ChatEvent]:
    whole = {
        (each.turn, each.part): each.seq for each in events if each.part and each.kind not in TRANSIENT_KINDS
    }
    return [
        each
        for each in events
        if each.kind not in TRANSIENT_KINDS or whole.get((each.turn, each.part), 0) < each.seq
    ]


WORDS = st.sampled_from(
    [
        *("Some words. ", "**strong** ", "\n\n", "\n", "- item\n", "1. one\n", "```py\n", "x = 1\n", "```\n"),
        *(
            "> said\n",
            "# Head\n\n",
            "| a | b |\n|---|---|\n| 1 | 2 |\n",
            "<script>hacked()</script>",
            "\u202e",
        ),
        *("[link](https://a.test)", "&amp; ", "é日 ", "\t", "`code`", "    indented\n"),
    ]
)
TEXT = st.lists(WORDS, min_size=1, max_size=14)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "many": {"type": "array", "items": {}}},
}


@st.composite
def logs(draw: st.DrawFn, *, ended: bool = False) -> Log:
    """Some turns; the last one is at its end, or anywhere."""
    log = Log()
    for _ in range(draw(st.integers(1, 3))):
        _turn(draw, log)
    if not ended and draw(st.booleans()):
        del log.events[draw(st.integers(1, len(log.events))) :]
    return log


def _turn(draw: st.DrawFn, log: Log) -> None:
    again = log.turn if log.turn and draw(st.booleans()) else None
    if draw(st.booleans()):
        log.add(Kind.USER, text="".join(draw(TEXT)), model=None, agent=None, again=again)
        for step in range(1, draw(st.integers(1, 3)) + 1):
            _step(draw, log, f"step-{step}")
    else:
        log.add(Kind.RUN, name="demo_count", arguments={"to": 3}, again=again)
        _calls(draw, log, 1)
    why = draw(st.sampled_from(["done", "stopped", "failed", "limit", "interrupted"]))
    log.add(Kind.END, why=why, error=None if why == "done" else "it ended", hint=None, seconds=1.5)


def _step(draw: st.DrawFn, log: Log, part: str) -> None:
    thoughts, reply_text = draw(st.lists(WORDS, max_size=4)), draw(TEXT)
    for delta in thoughts:
        log.add(Kind.REASONING, part, delta=delta)
    for delta in reply_text:
        log.add(Kind.TEXT, part, delta=delta)
    calls = draw(st.integers(0, 3))
    # A provider may say in the end something else than what it streamed.
    text = "".join(reply_text) if draw(st.integers(0, 5)) else "Something else."
    log.add(Kind.MODEL_MESSAGE, part, text=text, reasoning="".join(thoughts), model="fake-1", calls=calls)
    log.add(Kind.USAGE, input=10, output=5, cached=1, cost=draw(st.sampled_from([None, "0.002"])))
    _calls(draw, log, calls)


def _calls(draw: st.DrawFn, log: Log, calls: int) -> None:
    ids = [f"call-{log.turn}-{len(log.events)}-{number}" for number in range(calls)]
    for id_ in ids:
        log.add(
            Kind.CALL,
            id=id_,
            name="demo_count",
            tool="demo/count",
            server="Demo",
            native=False,
            title="",
            arguments={"to": 3},
        )
    unread_ids = [*ids, *ids]
    while unread_ids:
        id_ = draw(st.sampled_from(unread_ids))
        unread_ids.remove(id_)
        if id_ in unread_ids:
            _happens(draw, log, id_)
        else:
            _results(draw, log, id_)


def _happens(draw: st.DrawFn, log: Log, id_: str) -> None:
    match draw(st.sampled_from(["progress", "ask", "question", "note", "nothing"])):
        case "progress":
            for number in range(draw(st.integers(1, 3))):
                log.add(Kind.PROGRESS, id_, id=id_, progress=number, total=3, message=None)
        case "ask":
            log.add(Kind.APPROVAL_REQUEST, id=id_, approval=f"a-{id_}", reason="it writes")
            log.add(
                Kind.APPROVAL_ANSWER, id=id_, approval=f"a-{id_}", yes=draw(st.booleans()), remembered=None
            )
        case "question":
            kind = draw(st.sampled_from(["form", "url", "sampling"]))
            call = draw(st.sampled_from([id_, None]))
            log.add(
                Kind.QUESTION,
                id=f"q-{id_}",
                call=call,
                server="Demo",
                kind=kind,
                message="Where to?",
                schema=SCHEMA,
                url="https://a.test/x",
                request="Say it",
            )
            if draw(st.booleans()):
                log.add(
                    Kind.QUESTION_ANSWER,
                    id=f"q-{id_}",
                    action=draw(st.sampled_from(["accept", "decline", "cancel"])),
                )
        case "note":
            log.add(Kind.NOTE, text="something happened", hint=None)
        case _:
            pass


def _results(draw: st.DrawFn, log: Log, id_: str) -> None:
    ok = draw(st.booleans())
    media = draw(st.sampled_from([[], [{"kind": "image", "mime": "image/png", "size": 70}]]))
    log.add(
        Kind.RESULT,
        id_,
        id=id_,
        ok=ok,
        text=draw(st.sampled_from(["", "Counted to 3.", '{"a": [1]}', "<script>hacked()</script>"])),
        length=draw(st.sampled_from([0, 9_000])),
        cause=None if ok else "it is down",
        seconds=0.25,
        media=media,
        handle=None,
        reconnect=None if ok else draw(st.sampled_from([None, "i-1"])),
    )
