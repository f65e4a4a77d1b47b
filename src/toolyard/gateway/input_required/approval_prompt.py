"""Approval questions to the client of a call, where its token allows that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolyard.agents.chat.argument_review import review_text
from toolyard.clients.callbacks import CapabilityNotOffered
from toolyard.core.call_approvals import CallApprovals
from toolyard.errors import ApprovalNeeded, RpcError, ToolRefused
from toolyard.gateway.incoming_request import CURRENT_REQUEST, ClientRequest
from toolyard.gateway.input_required.request_state import REQUEST_STATE_SECONDS
from toolyard.gateway.input_required.rounds import InputRequiredRunner
from toolyard.protocol.server import build_input_required_result
from toolyard.results.json_size import estimate_characters
from toolyard.types.account import Right
from toolyard.types.call import Caller
from toolyard.types.json_values import object_or_empty
from toolyard.types.visible_text import visible

__all__ = ["ApprovalPrompt"]

_INPUT_REQUEST_NAME = "toolyard/approval"
"""Name of our question in an ``input_required`` result, which contains no other question."""
_ELICITATION_METHOD = "elicitation/create"
_CALL_META_TOOL = "tools_call"
MAX_MESSAGE_CHARACTERS = 2_000
"""Maximum length of a question that clients can be expected to show in full."""
_INPUT_REQUIRED_PARAMS = ("inputResponses", "requestState")


class ApprovalPrompt:
    """Approval questions for one caller.

    A client with a session is asked while the call waits. Others repeat the call with their answer, on any
    replica.
    """

    def __init__(
        self,
        approvals: CallApprovals | None,
        caller: Caller,
        runner: InputRequiredRunner,
        *,
        max_characters: int = MAX_MESSAGE_CHARACTERS,
    ) -> None:
        self._approvals = approvals
        self._max_characters = max_characters
        self._runner = runner
        self._owner = caller.principal.id
        self._can_approve = caller.scope is None or Right.APPROVE in caller.scope.rights

    async def apply_answer(self, request: ClientRequest) -> dict[str, Any] | None:
        """Apply the answer that a repeated request brings to our question; the call then continues as if it
        were new.

        Returns the question again if the answer is missing. Raises ToolRefused if the client declined, and
        RpcErrorResponse for a state that is not ours.
        """
        if (
            self._approvals is None
            or not request.era.asks_in_results
            or request.params.get("requestState") is None
        ):
            return None
        approval = self._runner.open_state(request).get("approval")
        if not isinstance(approval, str):
            return None
        answers = object_or_empty(request.params.get("inputResponses"))
        answer = object_or_empty(answers.get(_INPUT_REQUEST_NAME))
        if not answer:
            return self._repeat_question(request)
        await self._record_answer(approval, answer, _target_tool_name(request))
        request.params = {
            key: value for key, value in request.params.items() if key not in _INPUT_REQUIRED_PARAMS
        }
        return None

    def _repeat_question(self, request: ClientRequest) -> dict[str, Any]:
        content = self._runner.open_state(request)
        return self._build_question(request, content["approval"], content["message"])

    async def ask_client(
        self,
        needed: ApprovalNeeded,
        request: ClientRequest,
        arguments: Mapping[str, Any],
        retry_call: Callable[[], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any] | None:
        """Ask the client, and return the result of the repeated call, or the question itself.

        Returns None if the client cannot be asked or does not answer in time; then ``needed`` is reported.
        Raises ToolRefused if the client declines. The question shows all arguments. Arguments that are too
        long for it can be approved only on the page.
        """
        if self._approvals is None or not self._can_approve or not _supports_form_elicitation(request):
            return None
        message = _build_message(needed, arguments, self._max_characters)
        if message is None or len(message) > self._max_characters:
            if not self._approvals.has_page:
                raise _too_long_error(needed, self._max_characters)
            return None
        if request.era.asks_in_results:
            return self._build_question(request, needed.approval, message)
        answer = await self._ask_in_session(request, message)
        if answer is None:
            return None
        await self._record_answer(needed.approval, answer, _target_tool_name(request))
        return await retry_call()

    async def add_link(self, needed: ApprovalNeeded) -> None:
        """Add a link for the person to an approval that the client was not asked for."""
        if self._approvals is not None:
            await self._approvals.add_link(needed)

    def _build_question(self, request: ClientRequest, approval: str, message: str) -> dict[str, Any]:
        state = self._runner.seal_state(request, {"approval": approval, "message": message})
        return build_input_required_result(
            {_INPUT_REQUEST_NAME: {"method": _ELICITATION_METHOD, "params": _build_form(message)}}, state
        )

    async def _ask_in_session(self, request: ClientRequest, message: str) -> dict[str, Any] | None:
        """Return the client's answer, or None if it cannot answer or does not in time."""
        if request.session is None:
            return None
        CURRENT_REQUEST.set(request)
        try:
            async with asyncio.timeout(REQUEST_STATE_SECONDS):
                return await request.session.ask_client(_ELICITATION_METHOD, _build_form(message))
        except (CapabilityNotOffered, RpcError, TimeoutError):
            return None

    async def _record_answer(self, approval: str, answer: Mapping[str, Any], name: str) -> None:
        """Record the answer. Raises ToolRefused unless the recorded answer is an approval."""
        action = answer.get("action")
        # Closing the question is not a refusal: the approval stays open on the page.
        counts = self._approvals is not None and self._can_approve and action in ("accept", "decline")
        if not counts or not await self._submit_answer(approval, yes=action == "accept"):
            raise ToolRefused(f"the call to '{name}' was not approved")

    async def _submit_answer(self, approval: str, *, yes: bool) -> bool:
        return self._approvals is not None and await self._approvals.answer(self._owner, approval, yes=yes)


def _target_tool_name(request: ClientRequest) -> str:
    """Return the tool's name for people; for a meta tool, that of the tool behind it."""
    name = request.params.get("name")
    behind = object_or_empty(request.params.get("arguments")).get("name")
    return str(behind if name == _CALL_META_TOOL and isinstance(behind, str) else name)


def _supports_form_elicitation(request: ClientRequest) -> bool:
    """Return whether the client supports forms; a capability without kinds means forms too."""
    offered = request.capabilities if request.session is None else request.session.capabilities
    kinds = object_or_empty(offered).get("elicitation")
    return isinstance(kinds, dict) and (not kinds or "form" in kinds)


def _build_form(message: str) -> dict[str, Any]:
    """Build a form without fields: accepting it is the approval."""
    return {"message": message, "requestedSchema": {"type": "object", "properties": {}}}


def _build_message(needed: ApprovalNeeded, arguments: Mapping[str, Any], max_characters: int) -> str | None:
    # Not even rendered if it cannot fit, because rendering megabytes takes seconds.
    if estimate_characters(arguments, 4 * max_characters) > 4 * max_characters:
        return None
    text = review_text(arguments)
    return None if text is None else f"{visible(needed.cause)}. Allow this call?\n{text}"


def _too_long_error(needed: ApprovalNeeded, most: int) -> ToolRefused:
    return ToolRefused(
        f"{needed.cause}; the arguments are too long to be shown in a question ({most:,} characters)",
        hint="connect to a Toolyard that has a page for approvals (toolyard serve), "
        "or set write_tools to 'allow'",
    )
