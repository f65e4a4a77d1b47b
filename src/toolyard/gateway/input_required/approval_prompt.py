"""A call that needs somebody's yes, put to the client as a question where its token allows that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolyard.agents.chat.argument_review import review_text
from toolyard.clients.callbacks import NotOffered
from toolyard.errors import ApprovalNeeded, RpcError, ToolRefused
from toolyard.gateway.client_request import CURRENT, Request, as_object
from toolyard.gateway.input_required.approvals import Approvals
from toolyard.gateway.input_required.request_state import LIFE
from toolyard.gateway.input_required.rounds import Rounds
from toolyard.protocol.server import input_required
from toolyard.types.account import Right
from toolyard.types.call import Caller
from toolyard.types.visible_text import visible

__all__ = ["Asking"]

_INPUT = "toolyard/approval"
"""The name of our question in a modern round, which asks nothing else."""
_ASK = "elicitation/create"
_META = "tools_call"
MAX_MESSAGE_CHARACTERS = 2_000
"""Length of a question up to which clients can be expected to show all of it."""
_ROUND = ("inputResponses", "requestState")


class Asking:
    """For one caller. In the legacy era the client is asked while the call waits; a modern client makes the
    call anew with its answer, at any replica."""

    def __init__(
        self,
        approvals: Approvals | None,
        caller: Caller,
        rounds: Rounds,
        *,
        max_characters: int = MAX_MESSAGE_CHARACTERS,
    ) -> None:
        self._approvals = approvals
        self._max_characters = max_characters
        self._rounds = rounds
        self._owner = caller.principal.id
        self._allowed = caller.scope is None or Right.APPROVE in caller.scope.rights

    async def settled(self, request: Request) -> dict[str, Any] | None:
        """Take the answer that a modern client brings, if it brings one to a question of ours; the call then
        goes on as if it came for the first time. What there is to answer instead, where the answer is
        missing. Raises ToolRefused where it is no, and Refusal for a state that is not ours."""
        if self._approvals is None or not request.modern or request.params.get("requestState") is None:
            return None
        approval = self._rounds.opened(request).get("approval")
        if not isinstance(approval, str):
            return None
        answer = as_object(as_object(request.params.get("inputResponses")).get(_INPUT))
        if not answer:
            return self._again(request)
        await self._take(approval, answer, _tool(request))
        request.params = {key: value for key, value in request.params.items() if key not in _ROUND}
        return None

    def _again(self, request: Request) -> dict[str, Any]:
        content = self._rounds.opened(request)
        return self._question(request, content["approval"], content["message"])

    async def ask(
        self,
        needed: ApprovalNeeded,
        request: Request,
        arguments: Mapping[str, Any],
        again: Callable[[], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any] | None:
        """The result of the call, made again after the client's yes; or what asks a modern client. None
        where this client cannot be asked, or does not answer in time: then ``needed`` is what there is to
        say. Raises ToolRefused where the answer is no.

        A question shows all arguments. Those that are too long for one can only be approved on the page."""
        if self._approvals is None or not self._allowed or not _takes_forms(request):
            return None
        message = _message(needed, arguments)
        if message is None or len(message) > self._max_characters:
            if needed.link is None:
                raise _too_long(needed, self._max_characters)
            return None
        if request.modern:
            return self._question(request, needed.approval, message)
        answer = await self._answer(request, message)
        if answer is None:
            return None
        await self._take(needed.approval, answer, _tool(request))
        return await again()

    def _question(self, request: Request, approval: str, message: str) -> dict[str, Any]:
        state = self._rounds.seal(request, {"approval": approval, "message": message})
        return input_required({_INPUT: {"method": _ASK, "params": _form(message)}}, state)

    async def _answer(self, request: Request, message: str) -> dict[str, Any] | None:
        """What a legacy client answers; None where it cannot, or does not in time."""
        if request.session is None:
            return None
        CURRENT.set(request)
        try:
            async with asyncio.timeout(LIFE):
                return await request.session.ask(_ASK, _form(message))
        except (NotOffered, RpcError, TimeoutError):
            return None

    async def _take(self, approval: str, answer: Mapping[str, Any], name: str) -> None:
        """Raises ToolRefused unless the answer that counts is yes."""
        action = answer.get("action")
        # One who only closed the question has not said no: it still waits on the page.
        counts = self._approvals is not None and self._allowed and action in ("accept", "decline")
        if not counts or not await self._answered(approval, yes=action == "accept"):
            raise ToolRefused(f"the call of '{name}' was not approved")

    async def _answered(self, approval: str, *, yes: bool) -> bool:
        return self._approvals is not None and await self._approvals.answer(self._owner, approval, yes=yes)


def _tool(request: Request) -> str:
    """What is called, for people: through a meta tool, the tool behind it."""
    name = request.params.get("name")
    behind = as_object(request.params.get("arguments")).get("name")
    return str(behind if name == _META and isinstance(behind, str) else name)


def _takes_forms(request: Request) -> bool:
    """Whether the client can be asked by a form: an offer that names no kind means that one."""
    offered = request.capabilities if request.modern else request.session and request.session.capabilities
    kinds = as_object(offered).get("elicitation")
    return isinstance(kinds, dict) and (not kinds or "form" in kinds)


def _form(message: str) -> dict[str, Any]:
    """Nothing to fill in: to accept is to say yes."""
    return {"message": message, "requestedSchema": {"type": "object", "properties": {}}}


def _message(needed: ApprovalNeeded, arguments: Mapping[str, Any]) -> str | None:
    text = review_text(arguments)
    return None if text is None else f"{visible(needed.cause)}. Allow this call?\n{text}"


def _too_long(needed: ApprovalNeeded, most: int) -> ToolRefused:
    return ToolRefused(
        f"{needed.cause}; its arguments are too long to be shown in a question ({most:,} characters)",
        hint="connect to a Toolyard that has a page for approvals (toolyard serve), "
        "or set write_tools to 'allow'",
    )
