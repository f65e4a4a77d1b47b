"""Run one turn: from its first event, or the approvals it waited for, to its end or its next wait.

A turn runs in its own task, independent of the request that started it. Its whole state is in its events, so
any process can continue a turn that another process started.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from toolyard.agents.chat.elicitation import Declined, ServerQuestions
from toolyard.agents.chat.elicitation_request import SamplingRequest
from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.event_writer import (
    EventWriter,
    TurnLog,
    find_kept_seqs,
    read_chat_events,
    read_turn_events,
)
from toolyard.agents.chat.storage import ApprovalStore, ChatStore
from toolyard.agents.chat.tool_set import OfferedTools, ToolSet
from toolyard.agents.chat.turn_calls import TurnCallRunner, call_event
from toolyard.agents.chat.turn_end import TurnEnd, build_closing_events
from toolyard.agents.chat.turn_limits import ChatLimits, find_reached_limit, find_repeated_call
from toolyard.agents.chat.turn_snapshot import step_part_id
from toolyard.agents.models.available_models import Models
from toolyard.errors import ToolyardError
from toolyard.meta import RESULT_READ_TOOL
from toolyard.types.chat import Chat, ChatEvent, Kind, NewChatEvent, TurnOutcome, TurnState

if TYPE_CHECKING:
    from toolyard.agents.chat.model_conversation import ModelConversation

__all__ = ["MODEL_MODULES", "Turn", "TurnServices", "close_turn", "resolve_model_id"]

log = logging.getLogger("toolyard.chat")

MODEL_MODULES = ("toolyard.agents.chat.model_conversation",)
"""Modules that import the model libraries: they need an optional extra and are slow to load."""

_END_WRITE_TIMEOUT_SECONDS = 10.0
"""Maximum duration of a turn's last write."""


@dataclass(frozen=True, slots=True)
class TurnServices:
    """Services shared by all turns of a process."""

    store: ChatStore
    approvals: ApprovalStore
    models: Models
    questions: ServerQuestions
    limits: ChatLimits
    runner: str
    clock: Callable[[], float]


class Turn:
    """One turn of a chat that this process holds."""

    def __init__(self, context: TurnServices, chat: Chat, number: int, tool_set: ToolSet) -> None:
        self._context = context
        self._chat = chat
        self._number = number
        self._tool_set = tool_set
        self._event_writer = EventWriter(context.store, chat.id, context.runner)
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
        # A cancelled task keeps its frames alive, and these reference the turn with its whole conversation.
        self._task = None
        if end is not None:
            await self._write_end(end)

    def _determine_end(self) -> TurnEnd | None:
        """Return how the turn ended; None if it continues later or in another process."""
        if self._task is None or self._task.cancelled():
            return self._stop_reason or TurnEnd(TurnOutcome.INTERRUPTED)
        error = self._task.exception()
        if error is None:
            return self._task.result()
        if isinstance(error, NotHeld):
            return None
        if isinstance(error, ToolyardError):
            return TurnEnd(TurnOutcome.FAILED, error.cause, error.hint)
        # Boundary of the task: an unexpected exception goes to the log, not to the user.
        log.error("chat %s: a turn failed", self._chat.id, exc_info=error)
        return TurnEnd(
            TurnOutcome.FAILED, "the turn failed inside Toolyard", "see Toolyard's log; you can try again"
        )

    async def _write_end(self, end: TurnEnd) -> None:
        try:
            async with asyncio.timeout(_END_WRITE_TIMEOUT_SECONDS):
                try:
                    # First the streamed text that is still buffered, so that closing the turn turns it into a
                    # partial answer.
                    await self._event_writer.finish()
                except NotHeld:
                    return
                except ToolyardError as error:
                    log.warning(
                        "chat %s: some streamed text could not be stored: %s", self._chat.id, error.cause
                    )
                await close_turn(self._context, self._chat.id, self._number, end)
        except NotHeld:
            pass
        except (ToolyardError, TimeoutError) as error:
            # The heartbeat finds this turn without a running task, and ends it later.
            log.warning("chat %s: the end of a turn could not be stored: %s", self._chat.id, error)

    # Steps of a turn.

    async def _continue_turn(self) -> TurnEnd | None:
        events = await read_turn_events(self._context.store, self._chat.id, self._number)
        turn_log = TurnLog(self._event_writer, events)
        if turn_log.build_snapshot().is_manual:
            return await self._run_manual_call(turn_log)
        return await self._run_conversation(turn_log)

    async def _run_manual_call(self, turn_log: TurnLog) -> TurnEnd | None:
        tool_set, first_body = self._tool_set.for_operator(), turn_log.events[0].body
        name, arguments = str(first_body["name"]), first_body["arguments"]
        await tool_set.locate(name)
        if not turn_log.build_snapshot().open_calls:
            await turn_log.append([call_event(tool_set, f"call_{secrets.token_hex(8)}", name, arguments)])
        completed = await self._create_call_runner(turn_log, tool_set).run_open_calls(
            turn_log.build_snapshot()
        )
        return TurnEnd(TurnOutcome.DONE) if completed else None

    async def _run_conversation(self, turn_log: TurnLog) -> TurnEnd | None:
        agent, limits = self._tool_set.agent, self._context.limits
        earlier_events = await read_chat_events(self._context.store, self._chat.id, before=self._number)
        conversation = await self._open_conversation(turn_log, earlier_events)
        call_runner = self._create_call_runner(turn_log, self._tool_set)
        used_call_ids = _collect_call_ids(earlier_events)
        while True:
            # Recomputing the state from the events on each iteration keeps one code path for new and resumed
            # turns.
            snapshot = turn_log.build_snapshot()
            if snapshot.open_calls:
                if (limit := find_repeated_call(snapshot)) is not None:
                    return limit
                if not await call_runner.run_open_calls(snapshot):
                    return None
                continue
            if (
                limit := find_reached_limit(snapshot, limits, None if agent is None else agent.max_steps)
            ) is not None:
                return limit
            if any(event.kind is Kind.RESULT and event.body.get("handle") for event in turn_log.events):
                conversation.add_tool(RESULT_READ_TOOL)
            part = step_part_id(snapshot.steps + 1)
            messages = conversation.next_messages(turn_log.events, turn_log.kept_data_by_seq)
            if notes := conversation.build_omission_notes(turn_log.events):
                await turn_log.append(notes)
            answer = await conversation.ask(
                messages, used_call_ids | _collect_call_ids(turn_log.events), part, self._event_writer
            )
            calls = [call_event(self._tool_set, each.id, each.name, each.arguments) for each in answer.calls]
            await turn_log.append([*answer.events, *calls])
            if not calls:
                return TurnEnd(TurnOutcome.DONE)

    async def _open_conversation(
        self, turn_log: TurnLog, earlier_events: list[ChatEvent]
    ) -> ModelConversation:
        """Build the model conversation from the chat's earlier events. Raises a ModelError."""
        picked_model = self._context.models.pick(resolve_model_id(self._chat, self._tool_set))
        offered_tools = await self._tool_set.fetch_offered_tools()
        if turn_log.build_snapshot().steps == 0 and (notes := list(_build_tool_notes(offered_tools))):
            await turn_log.append(notes)
        await self._context.models.loader.load_in_thread(*MODEL_MODULES)
        from toolyard.agents.chat.model_conversation import ModelConversation  # see MODEL_MODULES

        kept_data = await self._context.store.get_kept_data_by_seq(
            self._chat.id, find_kept_seqs([*earlier_events, *turn_log.events])
        )
        turn_log.kept_data_by_seq |= {
            event.seq: kept_data[event.seq] for event in turn_log.events if event.seq in kept_data
        }
        repeated_turn: Any = turn_log.events[0].body.get("again")
        window_tokens = await picked_model.get_context_window()
        agent = self._tool_set.agent
        # Converting a long chat takes noticeable CPU time; a thread keeps the event loop responsive.
        return await asyncio.to_thread(
            ModelConversation,
            picked_model,
            offered_tools.tools,
            agent,
            earlier_events,
            kept_data,
            repeated_turn,
            window_tokens,
        )

    def _create_call_runner(self, turn_log: TurnLog, tool_set: ToolSet) -> TurnCallRunner:
        context = self._context
        sample = partial(self._answer_sampling, turn_log) if context.models.choices else None
        return TurnCallRunner(
            turn_log, tool_set, context.approvals, context.questions, context.limits, sample, context.clock
        )

    async def _answer_sampling(self, turn_log: TurnLog, request: SamplingRequest) -> Mapping[str, Any]:
        limits, used_tokens = self._context.limits, turn_log.build_snapshot().tokens
        if used_tokens >= limits.token_budget:
            raise Declined(f"this turn has used {used_tokens:,} tokens; the limit is {limits.token_budget:,}")
        picked_model = self._context.models.pick(resolve_model_id(self._chat, self._tool_set))
        await self._context.models.loader.load_in_thread(*MODEL_MODULES)
        from toolyard.agents.chat.model_conversation import answer_sampling_request  # see MODEL_MODULES

        return await answer_sampling_request(request, picked_model, turn_log, limits.max_sampling_tokens)


def resolve_model_id(chat: Chat, tool_set: ToolSet) -> str | None:
    """Return the chat's model, or else its agent's; None means the default model."""
    return chat.model or (None if tool_set.agent is None else tool_set.agent.model)


async def close_turn(context: TurnServices, chat_id: str, number: int, end: TurnEnd) -> None:
    """End a turn that this process holds: append its missing events and release the chat.

    Raises NotHeld, or the store's errors.
    """
    # Read from the store and not from memory: the turn may have been taken over from another process.
    events = await read_turn_events(context.store, chat_id, number)
    closing_events = build_closing_events(events, end, context.clock())
    if closing_events:
        await context.store.append(chat_id, context.runner, closing_events, next_state=TurnState.IDLE)


def _build_tool_notes(offered_tools: OfferedTools) -> Iterator[NewChatEvent]:
    """Yield notes for the user about the tools of this turn."""
    if offered_tools.meta_tools_reason:
        text = f"the model uses tools through the meta tools: {offered_tools.meta_tools_reason}"
        yield NewChatEvent(Kind.NOTE, {"text": text, "hint": None})
    for unavailable in offered_tools.unavailable_servers:
        text = f"the tools of {unavailable.server} cannot be listed: {unavailable.cause}"
        yield NewChatEvent(Kind.NOTE, {"text": text, "hint": unavailable.hint})


def _collect_call_ids(events: Iterable[ChatEvent]) -> set[str]:
    return {str(event.body.get("id")) for event in events if event.kind is Kind.CALL}
