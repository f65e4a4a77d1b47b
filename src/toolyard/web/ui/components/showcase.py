"""The living page of all UI parts in all their states, for developers. It is made of the parts themselves."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.types.chat import Chat, TurnState
from toolyard.types.decision import Decision, Link, Outcome
from toolyard.web.access.dependencies import Visitor, visitor
from toolyard.web.ui.chat.example import EXAMPLE, example_events
from toolyard.web.ui.chat.fragments import Frame, turn_part
from toolyard.web.ui.chat.page_context import ChatList
from toolyard.web.ui.chat.view_builder import ChatView
from toolyard.web.ui.components.assets import static_url
from toolyard.web.ui.components.paging import Pages
from toolyard.web.ui.components.render import render
from toolyard.web.ui.tools.form import ToolForm

__all__ = ["router"]

router = APIRouter()

STATES = (
    "ready",
    "connecting",
    "idle",
    "pending",
    "needs_auth",
    "needs_reauth",
    "failed",
    "disabled",
    "closed",
)
HOSTILE = '<script>alert("x")</script> \u202etxt.exe ' + "long" * 40
_CHAIN = (
    Link("state", Outcome.PASS, "the server is ready"),
    Link(
        "write guard", Outcome.REFUSE, "the tool does not say that it only reads, and write_tools is 'reject'"
    ),
    Link("allow and deny", Outcome.PASS, "nothing is denied"),
)
_ASKS = (
    Link("state", Outcome.PASS, "the server is idle"),
    Link("write guard", Outcome.ASK, "write_tools is 'ask'"),
)
_CHATS = (
    ("How busy was my week?", TurnState.IDLE),
    ("Note it, greet the team and count", TurnState.WAITING),
    ("", TurnState.RUNNING),
    (HOSTILE, TurnState.IDLE),
)
_FORM = {
    "required": ["start", "stops"],
    "properties": {
        "start": {"type": "string", "format": "date", "description": "The day of departure"},
        "stops": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "by": {"enum": ["train", "boat"], "default": "train"},
                },
            },
        },
        "stay": {
            "oneOf": [
                {"title": "Hotel", "type": "object", "properties": {"stars": {"type": "integer"}}},
                {"type": "string"},
            ]
        },
        "interests": {"type": "array", "items": {"enum": ["food", "music"]}, "default": ["food"]},
        HOSTILE: {"type": "object", "description": HOSTILE},
    },
}


@router.get("/ui/dev/parts")
async def show_parts(request: Request, me: Annotated[Visitor, Depends(visitor)]) -> Response:
    """Every part, in every state."""
    now = time.time()
    frame = Frame(EXAMPLE, me.csrf, picture=static_url("icon.svg"))
    return render(
        request,
        "dev_parts.html",
        states=STATES,
        hostile=HOSTILE,
        moments=(now, now - 75, now - 7300, now + 86400 * 3, now - 86400 * 400),
        pages=Pages(3, 12, 1150, "/ui/dev/parts", {}),
        decisions=(
            Decision.of("files/write", "files_write", _CHAIN),
            Decision.of("files/move", "files_move", _ASKS),
            Decision.of("files/read", "files_read", _CHAIN[::2]),
        ),
        schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        turns=[turn_part(turn, frame) for turn in ChatView.of(example_events(now - 90)).turns],
        form=ToolForm.of(_FORM),
        chats=ChatList(
            [Chat(f"c{at}", "", title, now, now, state=state) for at, (title, state) in enumerate(_CHATS)],
            "",
            "older=1",
            "c0",
        ),
    )
