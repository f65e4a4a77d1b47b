"""Run the tool calls of one model answer: concurrently, after approval where needed, or refuse them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolyard.agents.chat.approval_grants import UnapprovedCall, grant_covers
from toolyard.agents.chat.elicitation import ActiveCall, SamplingHandler, ServerQuestions
from toolyard.agents.chat.event_writer import TurnLog
from toolyard.agents.chat.result_event import failure_event, result_event
from toolyard.agents.chat.storage import ApprovalStore
from toolyard.agents.chat.tool_set import ToolSet
from toolyard.agents.chat.turn_limits import ChatLimits, find_refused_calls
from toolyard.agents.chat.turn_snapshot import OpenCall, TurnSnapshot
from toolyard.concurrency.tasks import cancel_tasks
from toolyard.types.approval import Approval, Grant
from toolyard.types.call import ToolCall
from toolyard.types.chat import Kind, NewChatEvent, TurnState

__all__ = ["TurnCallRunner", "call_event"]

DENIED_MESSAGE = "the user declined this call"


@dataclass(slots=True)
class _CallPlan:
    """Decision for each open call of an answer."""

    refusal_events: list[NewChatEvent]
    """Results of the calls that are not made."""
    approved_calls: list[OpenCall]
    unapproved_calls: list[tuple[OpenCall, UnapprovedCall]]


class TurnCallRunner:
    """Runs the tool calls of one turn."""

    def __init__(
        self,
        turn_log: TurnLog,
        tool_set: ToolSet,
        approvals: ApprovalStore,
        questions: ServerQuestions,
        limits: ChatLimits,
        sampling_handler: SamplingHandler | None,
        clock: Callable[[], float],
    ) -> None:
        self._turn_log = turn_log
        self._tool_set = tool_set
        self._approvals = approvals
        self._questions = questions
        self._limits = limits
        self._sampling_handler = sampling_handler
        self._clock = clock
        self._call_slots = asyncio.Semaphore(limits.max_parallel_calls)

    async def run_open_calls(self, snapshot: TurnSnapshot) -> bool:
        """Produce a result for every open call. Return False if some need approval; the chat then waits for
        the user.

        Raises NotHeld, or the store's errors.
        """
        plan = await self._plan_calls(snapshot)
        if plan.refusal_events:
            await self._turn_log.append(plan.refusal_events)
        # Approved calls run before approvals are requested, because the request releases the chat: from then
        # on this process must not write to it.
        await _run_concurrently(self._run_call(call) for call in plan.approved_calls)
        if plan.unapproved_calls:
            await self._request_approvals(plan.unapproved_calls)
        return not plan.unapproved_calls

    async def _plan_calls(self, snapshot: TurnSnapshot) -> _CallPlan:
        unreviewed = [call for call in snapshot.open_calls if call.approval_id is None]
        refusals = find_refused_calls(unreviewed, snapshot.call_counts, self._limits)
        plan, candidates = _CallPlan([], [], []), list[tuple[OpenCall, UnapprovedCall]]()
        for call in snapshot.open_calls:
            reason = refusals.get(call.id) or _find_refusal_reason(call)
            if reason is not None:
                plan.refusal_events.append(failure_event(call.id, reason))
            elif (
                call.approval_id is None
                and (unapproved_call := self._find_required_approval(call)) is not None
            ):
                candidates.append((call, unapproved_call))
            else:
                plan.approved_calls.append(call)
        if candidates:
            await self._apply_grants(candidates, plan)
        return plan

    def _find_required_approval(self, call: OpenCall) -> UnapprovedCall | None:
        return (
            None
            if isinstance(call.arguments, str)
            else self._tool_set.find_required_approval(call.name, call.arguments)
        )

    async def _apply_grants(
        self, candidates: Sequence[tuple[OpenCall, UnapprovedCall]], plan: _CallPlan
    ) -> None:
        """Approve calls that a standing grant covers.

        The grant's use is recorded later, by the call itself.
        """
        owner, chat_id = self._tool_set.caller.principal.id, self._turn_log.chat_id
        now = self._clock()
        # Only a forecast: the call path checks again and uses the grant up, so that a grant revoked in
        # between does not approve the call.
        grants = list(await self._approvals.list_grants(owner, now))
        for call, unapproved_call in candidates:
            covering_grant = next(
                (grant for grant in grants if grant_covers(grant, unapproved_call, chat_id, now)), None
            )
            if covering_grant is None:
                plan.unapproved_calls.append((call, unapproved_call))
            else:
                plan.approved_calls.append(call)
                # Two calls of one answer must not rely on the same single-use grant.
                grants[grants.index(covering_grant)] = _decrement_uses(covering_grant)

    async def _run_call(self, call: OpenCall) -> None:
        assert not isinstance(call.arguments, str)
        async with self._call_slots:
            description = self._tool_set.describe(call.name, call.arguments)
            label = description.server_label
            if description.server_id is not None:
                label = self._tool_set.server_label(description.server_id)
            active_call = ActiveCall(
                self._tool_set.caller.principal.id,
                description.server_id,
                call.id,
                label,
                self._turn_log.event_writer,
                self._tool_set.find_server,
                self._sampling_handler,
            )
            started_at = time.monotonic()
            with self._questions.track_call(active_call):
                outcome = await self._tool_set.call(
                    ToolCall(
                        call.name,
                        call.arguments,
                        on_progress=lambda params: self._turn_log.event_writer.report_progress(
                            call.id, params
                        ),
                    )
                )
            event = result_event(
                call.id,
                outcome.result,
                ok=outcome.ok,
                seconds=time.monotonic() - started_at,
                reconnect_instance_id=outcome.reconnect_instance_id,
            )
            await self._turn_log.append([event])

    async def _request_approvals(self, unapproved_calls: Sequence[tuple[OpenCall, UnapprovedCall]]) -> None:
        events: list[NewChatEvent] = []
        for call, unapproved_call in unapproved_calls:
            approval = self._build_approval(call, unapproved_call)
            # Stored before the event that names it: a page that shows the event must find the approval.
            await self._approvals.add(approval)
            body = {"id": call.id, "approval": approval.id, "reason": unapproved_call.reason}
            events.append(NewChatEvent(Kind.APPROVAL_REQUEST, body))
        await self._turn_log.append(events, next_state=TurnState.WAITING)

    def _build_approval(self, call: OpenCall, unapproved_call: UnapprovedCall) -> Approval:
        return Approval(
            id=secrets.token_hex(12),
            owner=self._tool_set.caller.principal.id,
            tool=unapproved_call.tool,
            name=unapproved_call.name,
            definition_hash=unapproved_call.definition_hash,
            arguments=unapproved_call.arguments,
            reason=unapproved_call.reason,
            asked_at=self._clock(),
            chat_id=self._turn_log.chat_id,
            call_id=call.id,
        )


def call_event(tool_set: ToolSet, call_id: str, name: str, arguments: Any) -> NewChatEvent:
    """Return the event of a requested call."""
    description = tool_set.describe(name, arguments)
    body: dict[str, Any] = {
        "id": call_id,
        "name": name,
        "tool": description.tool_id,
        "server": description.server_label,
        "native": description.native,
        "title": description.title,
        "arguments": arguments,
    }
    return NewChatEvent(Kind.CALL, body)


def _find_refusal_reason(call: OpenCall) -> str | None:
    """Return why a call is refused regardless of its tool, or None."""
    if isinstance(call.arguments, str):
        return "not called: the arguments are not a JSON object; send them again as one"
    return DENIED_MESSAGE if call.approved is False else None


def _decrement_uses(grant: Grant) -> Grant:
    return grant if grant.uses is None else replace(grant, uses=grant.uses - 1)


async def _run_concurrently(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines concurrently.

    If one fails or this is cancelled, cancel the others and wait for them.
    """
    tasks = [asyncio.get_running_loop().create_task(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        # gather does not cancel the other tasks when one fails, and they must not outlive the turn.
        await cancel_tasks(tasks)
