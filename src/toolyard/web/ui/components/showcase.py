"""``/ui/dev/parts``: all UI parts in all their states, for developers. It uses the real macros."""

from __future__ import annotations

import time

from fastapi import Request, Response

from toolyard.agents.chat.turn_snapshot import ChatSnapshot
from toolyard.types.call import Decision, DecisionStep, RuleOutcome
from toolyard.types.chat import Chat, TurnState
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.chat.example_chat import EXAMPLE_CHAT_ID, example_events
from toolyard.web.ui.chat.fragments import FragmentContext, render_turn
from toolyard.web.ui.chat.page_context import ChatList
from toolyard.web.ui.components import responses
from toolyard.web.ui.components.lists import Pagination
from toolyard.web.ui.tools.schema_form import ToolForm

__all__ = ["router"]

router = Routes()

SERVER_STATES = (
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
HOSTILE_TEXT = '<script>alert("x")</script> \u202etxt.exe ' + "long" * 40
_REFUSED_STEPS = (
    DecisionStep("state", RuleOutcome.PASS, "the server is ready"),
    DecisionStep(
        "write tools",
        RuleOutcome.REFUSE,
        "the tool is not marked as read-only, and write_tools is 'reject'",
    ),
    DecisionStep("server", RuleOutcome.PASS, "nothing is denied"),
)
_APPROVAL_STEPS = (
    DecisionStep("state", RuleOutcome.PASS, "the server is idle"),
    DecisionStep("write tools", RuleOutcome.ASK, "write_tools is 'ask'"),
)
_EXAMPLE_CHATS = (
    ("How busy was my week?", TurnState.IDLE),
    ("Note it, greet the team and count", TurnState.WAITING),
    ("", TurnState.RUNNING),
    (HOSTILE_TEXT, TurnState.IDLE),
)
_EXAMPLE_SCHEMA = {
    "required": ["start", "stops"],
    "properties": {
        "start": {"type": "string", "format": "date", "description": "Departure date"},
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
        HOSTILE_TEXT: {"type": "object", "description": HOSTILE_TEXT},
    },
}


@router.get("/ui/dev/parts")
async def show_components(request: Request, me: deps.CurrentUser) -> Response:
    """Show every part in every state."""
    now = time.time()
    frame = FragmentContext(EXAMPLE_CHAT_ID, me.csrf, fixed_media_url=responses.static_url("icon.svg"))
    return responses.render_page(
        request,
        "dev_parts.html",
        states=SERVER_STATES,
        hostile=HOSTILE_TEXT,
        moments=(now, now - 75, now - 7300, now + 86400 * 3, now - 86400 * 400),
        pages=Pagination(3, 12, 1150, "/ui/dev/parts"),
        decisions=(
            Decision.from_chain("files/write", "files_write", _REFUSED_STEPS),
            Decision.from_chain("files/move", "files_move", _APPROVAL_STEPS),
            Decision.from_chain("files/read", "files_read", _REFUSED_STEPS[::2]),
        ),
        schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        turns=[render_turn(turn, frame) for turn in ChatSnapshot.from_events(example_events(now - 90)).turns],
        form=ToolForm.from_schema(_EXAMPLE_SCHEMA),
        chats=ChatList(
            [
                Chat(f"c{at}", "", title, now, now, state=state)
                for at, (title, state) in enumerate(_EXAMPLE_CHATS)
            ],
            "",
            "older=1",
            "c0",
            frozenset(),
        ),
    )
