"""The calls of one answer: made side by side, refused, or put to the person first."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolyard.agents.chat.approval_grants import Wanted, covers
from toolyard.agents.chat.chat_settings import ChatRules
from toolyard.agents.chat.elicitation import Flight, Questions, Sampler
from toolyard.agents.chat.result_event import failure_event, result_event
from toolyard.agents.chat.storage import ApprovalStore
from toolyard.agents.chat.tool_set import Toolbox
from toolyard.agents.chat.turn_limits import refusals
from toolyard.agents.chat.turn_log import Record
from toolyard.agents.chat.turn_snapshot import OpenCall, Standing
from toolyard.types.approval import Approval, Grant
from toolyard.types.chat import Kind, NewEvent, TurnState

__all__ = ["Calling", "call_event"]

DENIED = "the person said no to this call"


@dataclass(slots=True)
class _Plan:
    """What becomes of each open call."""

    results: list[NewEvent]
    """Of those that are not made."""
    ready: list[OpenCall]
    asking: list[tuple[OpenCall, Wanted]]


class Calling:
    """Makes calls for one turn."""

    def __init__(
        self,
        record: Record,
        toolbox: Toolbox,
        approvals: ApprovalStore,
        questions: Questions,
        rules: ChatRules,
        sample: Sampler | None,
        clock: Callable[[], float],
    ) -> None:
        self._record = record
        self._toolbox = toolbox
        self._approvals = approvals
        self._questions = questions
        self._rules = rules
        self._sample = sample
        self._clock = clock
        self._gate = asyncio.Semaphore(rules.parallel)

    async def answer(self, standing: Standing) -> bool:
        """Give every open call its result. False: some need the person first, and the chat was let go, to
        wait for them. Raises NotHeld, or what the store raises."""
        plan = await self._plan(standing)
        if plan.results:
            await self._record.append(plan.results)
        await _all(self._make(call) for call in plan.ready)
        if plan.asking:
            await self._ask(plan.asking)
        return not plan.asking

    async def _plan(self, standing: Standing) -> _Plan:
        fresh = [call for call in standing.calls if call.approval is None]
        refused = refusals(fresh, standing.made, self._rules)
        plan, wanted = _Plan([], [], []), list[tuple[OpenCall, Wanted]]()
        for call in standing.calls:
            why = refused.get(call.id) or _unfit(call)
            if why is not None:
                plan.results.append(failure_event(call.id, why))
            elif call.approval is None and (need := self._needs(call)) is not None:
                wanted.append((call, need))
            else:
                plan.ready.append(call)
        if wanted:
            await self._look_up(wanted, plan)
        return plan

    def _needs(self, call: OpenCall) -> Wanted | None:
        return None if isinstance(call.arguments, str) else self._toolbox.wanted(call.name, call.arguments)

    async def _look_up(self, wanted: Sequence[tuple[OpenCall, Wanted]], plan: _Plan) -> None:
        """Those that were granted before need not be asked for. The call itself uses the grant up."""
        owner, chat_id = self._toolbox.caller.principal.id, self._record.chat_id
        now = self._clock()
        grants = list(await self._approvals.grants(owner, now))
        for call, need in wanted:
            found = next((grant for grant in grants if covers(grant, need, chat_id, now)), None)
            if found is None:
                plan.asking.append((call, need))
            else:
                plan.ready.append(call)
                grants[grants.index(found)] = _less(found)

    async def _make(self, call: OpenCall) -> None:
        assert not isinstance(call.arguments, str)
        async with self._gate:
            described = self._toolbox.describe(call.name, call.arguments)
            label = described.server
            if described.server_id is not None:
                label = self._toolbox.label(described.server_id)
            flight = Flight(
                self._toolbox.caller.principal.id,
                described.server_id,
                call.id,
                label,
                self._record.scribe,
                self._sample,
            )
            began = time.monotonic()
            with self._questions.during(flight):
                called = await self._toolbox.call(
                    call.name, call.arguments, lambda params: self._record.scribe.progress(call.id, params)
                )
            event = result_event(
                call.id,
                called.result,
                ok=called.ok,
                seconds=time.monotonic() - began,
                reconnect=called.reconnect,
            )
            await self._record.append([event])

    async def _ask(self, asking: Sequence[tuple[OpenCall, Wanted]]) -> None:
        events: list[NewEvent] = []
        for call, need in asking:
            approval = self._approval(call, need)
            await self._approvals.ask(approval)
            body = {"id": call.id, "approval": approval.id, "reason": need.reason}
            events.append(NewEvent(Kind.ASK, body))
        await self._record.append(events, then=TurnState.WAITING)

    def _approval(self, call: OpenCall, need: Wanted) -> Approval:
        return Approval(
            id=secrets.token_hex(12),
            owner=self._toolbox.caller.principal.id,
            tool=need.tool,
            name=need.name,
            definition_hash=need.definition_hash,
            arguments=need.arguments,
            reason=need.reason,
            asked_at=self._clock(),
            chat_id=self._record.chat_id,
            call_id=call.id,
        )


def call_event(toolbox: Toolbox, id: str, name: str, arguments: Any) -> NewEvent:
    """The event of a call that is asked for."""
    described = toolbox.describe(name, arguments)
    body: dict[str, Any] = {
        "id": id,
        "name": name,
        "tool": described.tool,
        "server": described.server,
        "native": described.native,
        "title": described.title,
        "arguments": arguments,
    }
    return NewEvent(Kind.CALL, body)


def _unfit(call: OpenCall) -> str | None:
    """Why a call is not made, whatever the tool."""
    if isinstance(call.arguments, str):
        return "not called: the arguments are no JSON object; send them again as one"
    return DENIED if call.yes is False else None


def _less(grant: Grant) -> Grant:
    return grant if grant.uses is None else replace(grant, uses=grant.uses - 1)


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it side by side. Where one fails, or the whole is cancelled, the others are ended first."""
    tasks = [asyncio.get_running_loop().create_task(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
