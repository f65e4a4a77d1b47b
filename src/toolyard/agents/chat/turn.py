"""Run one turn: from its first event, or the approvals it waited for, to its end or its next wait.

A turn runs in its own task, independent of the request that started it. Its whole state is in its events, so
any process can continue a turn that another process started.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from toolyard.agents.chat.approval_grants import ApprovalStore, grant_covers
from toolyard.agents.chat.attachments import AttachmentService
from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.result_event import failure_event, result_event
from toolyard.agents.chat.server_questions import ActiveCall, Declined, SamplingHandler, ServerQuestions
from toolyard.agents.chat.server_request_parsing import SamplingRequest
from toolyard.agents.chat.tool_set import OfferedTools, ToolSet
from toolyard.agents.chat.turn_limits import (
    ChatLimits,
    find_reached_limit,
    find_refused_calls,
    find_repeated_call,
)
from toolyard.agents.chat.turn_log import (
    TurnLog,
    build_closing_events,
    build_end_event,
    read_chat_events,
    read_turn,
)
from toolyard.agents.chat.turn_snapshot import (
    CallSnapshot,
    ChatSnapshot,
    NoteSnapshot,
    TurnSnapshot,
    step_part_id,
)
from toolyard.agents.models.available_models import Models
from toolyard.concurrency.tasks import cancel_tasks
from toolyard.errors import ToolyardError
from toolyard.meta_tools import RESULT_READ_TOOL
from toolyard.store.errors import DatabaseUnavailable
from toolyard.tracing.tracer import Attributes
from toolyard.types.account import Principal
from toolyard.types.approval import Approval, Grant
from toolyard.types.call import ToolCall
from toolyard.types.chat import (
    ApprovalRequest,
    CallRequest,
    Chat,
    ManualCall,
    ModelUsage,
    NewChatEvent,
    Note,
    NoteTopic,
    TurnEnd,
    TurnOutcome,
    TurnState,
)
from toolyard.types.plurals import format_count

if TYPE_CHECKING:
    from toolyard.agents.chat.model_conversation import ModelConversation
    from toolyard.store.repositories.chats import SqlChatStore

__all__ = [
    "MODEL_MODULES",
    "ModelUsageCallback",
    "Turn",
    "TurnServices",
    "close_turn",
    "resolve_model_id",
]

log = logging.getLogger("toolyard.chat")

MODEL_MODULES = ("toolyard.agents.chat.model_conversation",)
"""Modules that import the model libraries: they need an optional extra and are slow to load."""

_END_WRITE_TIMEOUT_SECONDS = 10.0
"""Maximum duration of a turn's last write."""
_DENIED_MESSAGE = "the user declined this call"
_UNATTENDED_MESSAGE = "the call was refused: it needs approval, and nobody is here to give it"

ModelUsageCallback: TypeAlias = Callable[[str, str | None, str, ModelUsage], None]
"""Called after each model request with the chat's owner and agent, the id of the model, and the usage."""
_Candidate: TypeAlias = tuple[CallSnapshot, Approval]
"""A call, and the approval that it needs."""


@dataclass(frozen=True, slots=True)
class TurnServices:
    """Services shared by all turns of a process."""

    store: SqlChatStore
    approvals: ApprovalStore
    models: Models
    questions: ServerQuestions
    limits: ChatLimits
    runner: str
    clock: Callable[[], float]
    on_model_usage: ModelUsageCallback | None = None


class Turn:
    """One turn of a chat that this process holds."""

    def __init__(
        self,
        context: TurnServices,
        chat: Chat,
        number: int,
        tool_set: ToolSet,
        snapshot: TurnSnapshot | None = None,
        *,
        is_allowed: bool = False,
    ) -> None:
        """``snapshot`` is the state of a new turn; that of a resumed one is read from the store.

        ``is_allowed`` says that the call of the user has just been found to need no approval.
        """
        self._is_allowed = is_allowed
        self._context = context
        self._chat = chat
        self._number = number
        self._tool_set = tool_set
        # Not a method: the log would refer back to the turn, and neither would be freed with a stopped turn.
        on_usage = partial(_report_usage, context, chat, tool_set)
        self._log = TurnLog(context.store, chat.id, context.runner, on_usage, snapshot)
        self._call_slots = asyncio.Semaphore(context.limits.max_parallel_calls)
        self._stop_reason: TurnEnd | None = None
        self._task: asyncio.Task[TurnEnd | None] | None = None

    def stop(self, reason: TurnEnd) -> None:
        """Cancel the model request and the tool calls; ``run`` returns once the end has been stored."""
        # The first reason counts: a user's stop that is followed by a shutdown stays a stop.
        self._stop_reason = self._stop_reason or reason
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Run until the turn ends or waits for the user. Failures end the turn instead of being raised."""
        if self._stop_reason is None:
            self._task = asyncio.get_running_loop().create_task(self._continue_turn())
            try:
                # ``wait`` does not raise the exception of the task, and when this coroutine is cancelled it
                # does not cancel the task either, which is why that happens below.
                await asyncio.wait({self._task})
            finally:
                self._task.cancel()
        end = self._determine_end()
        is_regular = self._task is not None and not self._task.cancelled() and self._task.exception() is None
        # A cancelled task keeps its frames alive, and these reference the turn with its whole conversation.
        self._task = None
        if end is not None:
            await self._write_end(end, is_regular=is_regular)

    def _determine_end(self) -> TurnEnd | None:
        """Return how the turn ended; None if it continues later or in another process."""
        if self._task is None or self._task.cancelled():
            return self._stop_reason or TurnEnd(TurnOutcome.INTERRUPTED)
        error = self._task.exception()
        if error is None:
            return self._task.result()
        if isinstance(error, NotHeld):
            return None
        if isinstance(error, DatabaseUnavailable):
            log.warning("chat %s: a turn failed: %s", self._chat.id, error.cause)
            return TurnEnd(TurnOutcome.FAILED, error.public_cause, error.public_hint)
        if isinstance(error, ToolyardError):
            return TurnEnd(TurnOutcome.FAILED, error.cause, error.hint)
        # Boundary of the task: an unexpected exception goes to the log, not to the user.
        log.error("chat %s: a turn failed", self._chat.id, exc_info=error)
        return TurnEnd(
            TurnOutcome.FAILED, "the turn failed inside Toolyard", "see Toolyard's log; you can try again"
        )

    async def _write_end(self, end: TurnEnd, *, is_regular: bool) -> None:
        try:
            async with asyncio.timeout(_END_WRITE_TIMEOUT_SECONDS):
                try:
                    # First the streamed text that is still buffered, so that closing the turn turns it into a
                    # partial answer.
                    await self._log.finish()
                except NotHeld:
                    return
                except ToolyardError as error:
                    log.warning(
                        "chat %s: some streamed text could not be stored: %s", self._chat.id, error.cause
                    )
                snapshot = self._log.snapshot
                # Complete unless the turn was interrupted or a question is open, whose answer is not in the
                # log.
                is_complete = is_regular and not snapshot.open_calls and not snapshot.open_questions
                await close_turn(
                    self._context, self._chat.id, self._number, end, snapshot if is_complete else None
                )
        except NotHeld:
            pass
        except (ToolyardError, TimeoutError) as error:
            # The heartbeat finds this turn without a running task, and ends it later.
            log.warning("chat %s: the end of a turn could not be stored: %s", self._chat.id, error)

    # Steps of a turn.

    async def _continue_turn(self) -> TurnEnd | None:
        if self._log.snapshot.start is None:
            await self._log.load(self._number)
        start = self._log.snapshot.start
        return await (self._run_manual_call(start) if isinstance(start, ManualCall) else self._run_traced())

    async def _run_manual_call(self, start: ManualCall) -> TurnEnd | None:
        if not self._is_allowed:
            self._tool_set = self._tool_set.for_operator()
            await self._tool_set.locate(start.name)
        if not self._log.snapshot.open_calls:
            await self._log.append_data(self._tool_set.build_call_request(start.name, start.arguments))
        end = TurnEnd(TurnOutcome.DONE)
        is_done = await self._run_open_calls(end)
        # Mostly the end is stored together with the result.
        return end if is_done and not self._log.is_released else None

    async def _run_traced(self) -> TurnEnd | None:
        agent = self._tool_set.agent
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": None if agent is None else agent.id,
            "gen_ai.agent.name": None if agent is None else agent.name,
            "gen_ai.conversation.id": self._chat.id,
            "gen_ai.request.model": resolve_model_id(self._chat, self._tool_set),
        }
        name = "invoke_agent" if agent is None else f"invoke_agent {agent.name}"
        with self._context.models.tracer.span(name, attributes=attributes) as span:
            end = await self._run_model()
            span.set({"toolyard.turn.outcome": "waiting" if end is None else end.why})
            return end

    async def _run_model(self) -> TurnEnd | None:
        agent, log = self._tool_set.agent, self._log
        max_steps = None if agent is None else agent.max_steps
        # Only the branch to this turn: the model does not see the alternatives.
        branch = set((await self._context.store.get_turn_tree(self._chat.id)).branch(self._number))
        events = await read_chat_events(self._context.store, self._chat.id, before=self._number)
        earlier = ChatSnapshot.from_events(event for event in events if event.turn in branch).turns
        conversation = await self._open_conversation(earlier)
        attachments = [each for turn in (*earlier, log.snapshot) for each in turn.attachments]
        used_call_ids = {call.request.id for turn in earlier for call in turn.calls}
        while True:
            # Deciding by the snapshot on each iteration keeps one code path for new and resumed turns.
            if log.snapshot.open_calls:
                if (limit := find_repeated_call(log.snapshot)) is not None:
                    return limit
                if not await self._run_open_calls():
                    return None
                continue
            if (limit := find_reached_limit(log.snapshot, self._context.limits, max_steps)) is not None:
                return limit
            has_handle = any(call.result is not None and call.result.handle for call in log.snapshot.calls)
            if has_handle or any(not each.is_picture for each in attachments):
                conversation.add_tool(RESULT_READ_TOOL)
            messages = conversation.next_messages(log.snapshot, log.payload_by_seq)
            await log.append_data(*conversation.build_omission_notes(log.snapshot))
            used_call_ids |= {call.request.id for call in log.snapshot.calls}
            answer = await conversation.ask(
                messages, used_call_ids, step_part_id(log.snapshot.steps + 1), log
            )
            calls = [
                NewChatEvent.from_data(self._tool_set.build_call_request(name, arguments, call_id))
                for call_id, name, arguments in answer.calls
            ]
            await log.append([*answer.events, *calls])
            if not calls:
                return TurnEnd(TurnOutcome.DONE)

    async def _open_conversation(self, earlier: Sequence[TurnSnapshot]) -> ModelConversation:
        """Build the model conversation from the chat's earlier turns. Raises a ModelError."""
        context, log = self._context, self._log
        picked_model = context.models.pick(resolve_model_id(self._chat, self._tool_set), self._principal)
        offered_tools = await self._tool_set.fetch_offered_tools()
        if log.snapshot.steps == 0:
            await log.append_data(*_build_tool_notes(offered_tools, earlier))
        await context.models.loader.load_in_thread(*MODEL_MODULES)
        from toolyard.agents.chat.model_conversation import ModelConversation  # see MODEL_MODULES

        payloads = await context.store.get_payloads(
            self._chat.id, [seq for turn in (*earlier, log.snapshot) for seq in turn.payload_seqs]
        )
        log.payload_by_seq |= {seq: payloads[seq] for seq in log.snapshot.payload_seqs if seq in payloads}
        window_tokens = await picked_model.get_context_window()
        turns = (*earlier, log.snapshot)
        attached = await AttachmentService(context.store.attachments).load_contents(
            self._owner, turns, pictures=picked_model.choice.sees
        )
        # Converting a long chat takes noticeable CPU time; a thread keeps the event loop responsive.
        return await asyncio.to_thread(
            ModelConversation,
            picked_model,
            offered_tools.tools,
            self._tool_set.agent,
            earlier,
            payloads,
            window_tokens,
            attached,
        )

    def _find_sampling_handler(self) -> SamplingHandler | None:
        """Return None if the person may not use any model."""
        return self._answer_sampling if self._context.models.choices_for(self._principal) else None

    async def _answer_sampling(self, request: SamplingRequest) -> Mapping[str, Any]:
        limits, used_tokens = self._context.limits, self._log.snapshot.usage.tokens
        if used_tokens >= limits.token_budget:
            raise Declined(f"this turn has used {used_tokens:,} tokens; the limit is {limits.token_budget:,}")
        picked_model = self._context.models.pick(
            resolve_model_id(self._chat, self._tool_set), self._principal
        )
        await self._context.models.loader.load_in_thread(*MODEL_MODULES)
        from toolyard.agents.chat.model_conversation import answer_sampling_request  # see MODEL_MODULES

        return await answer_sampling_request(request, picked_model, self._log, limits.max_sampling_tokens)

    # Calls of one answer: concurrently, after approval where needed, or refused.

    async def _run_open_calls(self, end: TurnEnd | None = None) -> bool:
        """Produce a result for every open call. Return False if some need approval; the chat then waits for
        the user.

        ``end`` is that of a turn with a single call, which ends with its result. Raises NotHeld, or the
        store's errors.
        """
        # A single call cannot be one too many.
        refusals: Mapping[str, str] = {}
        if end is None:
            refusals = find_refused_calls(self._log.snapshot, self._context.limits)
        refused: list[NewChatEvent] = []
        approved: list[CallSnapshot] = []
        candidates: list[_Candidate] = []
        for call in self._log.snapshot.open_calls:
            request = call.request
            reason = refusals.get(request.id) or _find_refusal_reason(call)
            if reason is not None:
                refused.append(failure_event(request.id, reason))
            elif (
                call.approval is None
                and not self._is_allowed
                and (needed := self._tool_set.find_required_approval(request, self._context.clock()))
            ):
                candidates.append((call, needed))
            else:
                approved.append(call)
        granted, unapproved = await self._apply_grants(candidates) if candidates else ([], [])
        if refused:
            await self._log.append(refused)
        # Approved calls run before approvals are requested, because the request releases the chat: from then
        # on this process must not write to it.
        if end is None:
            await _run_concurrently(self._run_call(call.request) for call in approved + granted)
        else:
            for call in approved:
                await self._run_call(call.request, end)
        if unapproved:
            await self._request_approvals(unapproved)
        return not unapproved

    async def _apply_grants(
        self, candidates: Sequence[_Candidate]
    ) -> tuple[list[CallSnapshot], list[_Candidate]]:
        """Return the calls that a standing grant covers, and the others.

        The grant's use is recorded later, by the call itself.
        """
        granted: list[CallSnapshot] = []
        unapproved: list[_Candidate] = []
        now = self._context.clock()
        # Only a forecast: the call path checks again and uses the grant up, so that a grant revoked in
        # between does not approve the call.
        grants = list(await self._context.approvals.list_grants(self._owner, now))
        for call, needed in candidates:
            covering = None
            for grant in grants:
                if grant_covers(grant, needed, now):
                    covering = grant
                    break
                await asyncio.sleep(0)  # To compare arguments of 256 KB takes milliseconds.
            if covering is None:
                unapproved.append((call, needed))
            else:
                granted.append(call)
                # Two calls of one answer must not rely on the same single-use grant.
                grants[grants.index(covering)] = _decrement_uses(covering)
        return granted, unapproved

    @property
    def _principal(self) -> Principal:
        return self._tool_set.caller.principal

    @property
    def _owner(self) -> str:
        return self._principal.id

    async def _run_call(self, call: CallRequest, end: TurnEnd | None = None) -> None:
        assert not isinstance(call.arguments, str)
        tool_set = self._tool_set
        async with self._call_slots:
            active_call = ActiveCall(call, tool_set, self._log, self._find_sampling_handler)
            started_at = time.monotonic()
            with self._context.questions.track_call(active_call):
                outcome = await tool_set.call(
                    ToolCall(
                        call.name,
                        call.arguments,
                        on_progress=lambda params: self._log.report_progress(call.id, params),
                    )
                )
            event = result_event(
                call.id,
                outcome.result,
                ok=outcome.ok,
                seconds=time.monotonic() - started_at,
                reconnect_instance_id=outcome.reconnect_instance_id,
            )
            if end is None or self._log.snapshot.open_questions:
                await self._log.append([event])
            else:
                ended = build_end_event(self._log.snapshot, end, self._context.clock())
                await self._log.append([event, ended], next_state=TurnState.IDLE)

    async def _request_approvals(self, unapproved: Sequence[_Candidate]) -> None:
        events: list[NewChatEvent] = []
        for call, approval in unapproved:
            # Stored before the event that names it: a page that shows the event must find the approval. It is
            # asked for only now: the approved calls of the answer ran before.
            await self._context.approvals.add(replace(approval, asked_at=self._context.clock()))
            request = ApprovalRequest(call.request.id, approval.id, approval.reason)
            events.append(NewChatEvent.from_data(request))
        await self._log.append(events, next_state=TurnState.WAITING)


def _report_usage(context: TurnServices, chat: Chat, tool_set: ToolSet, usage: ModelUsage) -> None:
    if context.on_model_usage is not None:
        # Not picked again: an admin may have deleted the model since the turn began.
        default = context.models.default_for(tool_set.caller.principal)
        model = resolve_model_id(chat, tool_set) or default or ""
        tool_set.attribute_to_owner()
        context.on_model_usage(chat.owner, chat.agent, model, usage)


def resolve_model_id(chat: Chat, tool_set: ToolSet) -> str | None:
    """Return the chat's model, or else its agent's; None means the default model."""
    return chat.model or (None if tool_set.agent is None else tool_set.agent.model)


async def close_turn(
    context: TurnServices, chat_id: str, number: int, end: TurnEnd, snapshot: TurnSnapshot | None = None
) -> None:
    """End a turn that this process holds: append its missing events and release the chat.

    ``snapshot`` is the state of the turn, if it is complete in memory. Raises NotHeld, or the store's errors.
    """
    if snapshot is None:
        snapshot = await read_turn(context.store, chat_id, number)
    closing_events = build_closing_events(snapshot, end, context.clock())
    if closing_events:
        await context.store.append(chat_id, context.runner, closing_events, next_state=TurnState.IDLE)


def _build_tool_notes(offered_tools: OfferedTools, earlier: Sequence[TurnSnapshot]) -> Iterator[Note]:
    """Yield notes for the user about the tools of this turn, except those that an earlier turn shows."""
    notes = [item.note for turn in earlier for item in turn.items if isinstance(item, NoteSnapshot)]
    shown = {note.text for note in notes}
    reason = offered_tools.meta_tools_reason
    # Recognised by the topic, because the reason contains numbers that change with the tools.
    if reason and not any(note.topic == NoteTopic.META_TOOLS for note in notes):
        yield Note(f"the model finds tools by search: {reason}", topic=NoteTopic.META_TOOLS)
    for unavailable in offered_tools.unavailable_servers:
        text = f"the tools of {unavailable.server} cannot be listed: {unavailable.cause}"
        if text not in shown:
            yield Note(text, unavailable.hint)
    for quarantine in offered_tools.quarantines:
        tools = format_count(quarantine.count, "tool")
        text = f"{tools} of {quarantine.server} changed and cannot be used until the change is accepted"
        if text not in shown:
            yield Note(text, quarantine.hint)


def _find_refusal_reason(call: CallSnapshot) -> str | None:
    """Return why a call is refused regardless of its tool, or None."""
    if isinstance(call.request.arguments, str):
        return "not called: the arguments are not a JSON object; send them again as one"
    if call.approval_answer is None or call.approval_answer.yes:
        return None
    return _UNATTENDED_MESSAGE if call.approval_answer.unattended else _DENIED_MESSAGE


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
