"""One turn: from the event that began it, or the approvals that it waited for, to its end or its next wait.

It runs by itself, detached from whoever asked for it. All that it knows is in the events, so any process can
continue what another one began.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolyard.agents.chat.elicitation import ServerQuestions
from toolyard.agents.chat.elicitation_request import SamplingRequest
from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.event_writer import EventWriter
from toolyard.agents.chat.storage import ApprovalStore, ChatStore
from toolyard.agents.chat.tool_set import OfferedTools, ToolSet
from toolyard.agents.chat.turn_calls import TurnCallRunner, call_event
from toolyard.agents.chat.turn_end import TurnEnd, build_closing_events
from toolyard.agents.chat.turn_limits import ChatLimits, find_reached_limit, find_repeated_call
from toolyard.agents.chat.turn_log import TurnLog, find_kept_seqs, read_chat_events, read_turn_events
from toolyard.agents.chat.turn_snapshot import step_part_id
from toolyard.agents.models.available_models import Models
from toolyard.errors import ToolyardError
from toolyard.meta import RESULT_READ_TOOL
from toolyard.types.chat import Chat, ChatEvent, Kind, NewChatEvent, TurnOutcome, TurnState

if TYPE_CHECKING:
    from toolyard.agents.chat.model_conversation import ModelConversation

__all__ = ["MODEL_MODULES", "Turn", "TurnContext", "close_turn", "resolve_model_id"]

log = logging.getLogger("toolyard.chat")

MODEL_MODULES = ("toolyard.agents.chat.sampling", "toolyard.agents.chat.model_conversation")
"""Modules that talk to models: they need an extra, and are slow to load."""

_END_WRITE_TIMEOUT_SECONDS = 10.0
"""Seconds that the last write of a turn may take."""


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What every turn of a process works with."""

    store: ChatStore
    approvals: ApprovalStore
    models: Models
    questions: ServerQuestions
    limits: ChatLimits
    runner: str
    clock: Callable[[], float]


class Turn:
    """A turn of a chat that this process holds."""

    def __init__(self, context: TurnContext, chat: Chat, number: int, tool_set: ToolSet) -> None:
        self._context = context
        self._chat = chat
        self._number = number
        self._tool_set = tool_set
        self._event_writer = EventWriter(context.store, chat.id, context.runner)
        self._stop_reason: TurnEnd | None = None
        self._task: asyncio.Task[TurnEnd | None] | None = None

    def stop(self, reason: TurnEnd) -> None:
        """End the model's answer and the tools; ``run`` returns when that is done and written down."""
        self._stop_reason = self._stop_reason or reason
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Go on until the turn is over, or waits for the person. Never raises for what goes wrong in it."""
        if self._stop_reason is None:
            self._task = asyncio.get_running_loop().create_task(self._continue_turn())
            try:
                await asyncio.wait({self._task})
            finally:
                self._task.cancel()
        ended = self._determine_end()
        # A task that was cancelled keeps its frames, and these keep the turn with all that was said.
        self._task = None
        if ended is not None:
            await self._write_end(ended)

    def _determine_end(self) -> TurnEnd | None:
        """How it ended; None where it goes on some other time, or elsewhere."""
        if self._task is None or self._task.cancelled():
            return self._stop_reason or TurnEnd(TurnOutcome.INTERRUPTED)
        error = self._task.exception()
        if error is None:
            return self._task.result()
        if isinstance(error, NotHeld):
            return None
        if isinstance(error, ToolyardError):
            return TurnEnd(TurnOutcome.FAILED, error.cause, error.hint)
        # The top of a task: what we did wrong is for the log.
        log.error("a turn of chat %s failed", self._chat.id, exc_info=error)
        return TurnEnd(
            TurnOutcome.FAILED, "the turn failed inside Toolyard", "its log says why; you can try again"
        )

    async def _write_end(self, end: TurnEnd) -> None:
        try:
            async with asyncio.timeout(_END_WRITE_TIMEOUT_SECONDS):
                try:
                    await self._event_writer.finish()
                except NotHeld:
                    return
                except ToolyardError as error:
                    log.warning("chat %s: not all pieces were kept: %s", self._chat.id, error.cause)
                await close_turn(self._context, self._chat.id, self._number, end)
        except NotHeld:
            pass
        except (ToolyardError, TimeoutError) as error:
            # Whoever looks after the house ends it later.
            log.warning("the end of a turn of chat %s could not be written: %s", self._chat.id, error)

    # What a turn does.

    async def _continue_turn(self) -> TurnEnd | None:
        events = await read_turn_events(self._context.store, self._chat.id, self._number)
        record = TurnLog(self._event_writer, events)
        if record.build_snapshot().by_hand:
            return await self._run_manual_call(record)
        return await self._run_conversation(record)

    async def _run_manual_call(self, turn_log: TurnLog) -> TurnEnd | None:
        toolbox, asked = self._tool_set.for_operator(), turn_log.events[0].body
        name, arguments = str(asked["name"]), asked["arguments"]
        await toolbox.locate(name)
        if not turn_log.build_snapshot().open_calls:
            await turn_log.append([call_event(toolbox, f"call_{secrets.token_hex(8)}", name, arguments)])
        answered = await self._create_call_runner(turn_log, toolbox).run_open_calls(turn_log.build_snapshot())
        return TurnEnd(TurnOutcome.DONE) if answered else None

    async def _run_conversation(self, turn_log: TurnLog) -> TurnEnd | None:
        agent, most = self._tool_set.agent, self._context.limits
        earlier = await read_chat_events(self._context.store, self._chat.id, before=self._number)
        talk = await self._open_conversation(turn_log, earlier)
        calling = self._create_call_runner(turn_log, self._tool_set)
        used = _collect_call_ids(earlier)
        while True:
            standing = turn_log.build_snapshot()
            if standing.open_calls:
                if (limit := find_repeated_call(standing)) is not None:
                    return limit
                if not await calling.run_open_calls(standing):
                    return None
                continue
            if (
                limit := find_reached_limit(standing, most, None if agent is None else agent.max_steps)
            ) is not None:
                return limit
            if any(event.kind is Kind.RESULT and event.body.get("handle") for event in turn_log.events):
                talk.add_tool(RESULT_READ_TOOL)
            part = step_part_id(standing.steps + 1)
            messages = talk.next_messages(turn_log.events, turn_log.kept)
            if notes := talk.build_omission_notes(turn_log.events):
                await turn_log.append(notes)
            spoken = await talk.ask(
                messages, used | _collect_call_ids(turn_log.events), part, self._event_writer
            )
            calls = [call_event(self._tool_set, each.id, each.name, each.arguments) for each in spoken.calls]
            await turn_log.append([*spoken.events, *calls])
            if not calls:
                return TurnEnd(TurnOutcome.DONE)

    async def _open_conversation(
        self, turn_log: TurnLog, earlier_events: list[ChatEvent]
    ) -> ModelConversation:
        """The conversation with the model, from all that was said before. Raises a ModelError."""
        picked = self._context.models.pick(resolve_model_id(self._chat, self._tool_set))
        kit = await self._tool_set.fetch_offered_tools()
        if turn_log.build_snapshot().steps == 0 and (notes := list(_build_tool_notes(kit))):
            await turn_log.append(notes)
        await self._context.models.loader.load_in_thread(*MODEL_MODULES)
        from toolyard.agents.chat.model_conversation import ModelConversation  # see TALKING

        kept = await self._context.store.get_kept_data_by_seq(
            self._chat.id, find_kept_seqs([*earlier_events, *turn_log.events])
        )
        turn_log.kept |= {event.seq: kept[event.seq] for event in turn_log.events if event.seq in kept}
        again: Any = turn_log.events[0].body.get("again")
        window = await picked.get_context_window()
        agent = self._tool_set.agent
        # A long chat takes a moment to read; others need not wait for that.
        return await asyncio.to_thread(
            ModelConversation, picked, kit.tools, agent, earlier_events, kept, again, window
        )

    def _create_call_runner(self, turn_log: TurnLog, tool_set: ToolSet) -> TurnCallRunner:
        desk = self._context
        sample = self._answer_sampling if desk.models.choices else None
        return TurnCallRunner(
            turn_log, tool_set, desk.approvals, desk.questions, desk.limits, sample, desk.clock
        )

    async def _answer_sampling(self, request: SamplingRequest) -> Mapping[str, Any]:
        picked = self._context.models.pick(resolve_model_id(self._chat, self._tool_set))
        await self._context.models.loader.load_in_thread(*MODEL_MODULES)
        from toolyard.agents.chat.sampling import answer_sampling_request  # see TALKING

        return await answer_sampling_request(request, picked, self._event_writer)


def resolve_model_id(chat: Chat, tool_set: ToolSet) -> str | None:
    """The model that a chat's next request goes to: its own, else its agent's; None: the usual one."""
    return chat.model or (None if tool_set.agent is None else tool_set.agent.model)


async def close_turn(context: TurnContext, chat_id: str, number: int, end: TurnEnd) -> None:
    """End a turn that this process holds, with all that its events lack, and let go of the chat. Raises
    NotHeld, or what the store raises."""
    events = await read_turn_events(context.store, chat_id, number)
    last = build_closing_events(events, end, context.clock())
    if last:
        await context.store.append(chat_id, context.runner, last, next_state=TurnState.IDLE)


def _build_tool_notes(offered_tools: OfferedTools) -> Iterator[NewChatEvent]:
    """What the person should know about the tools of this turn."""
    if offered_tools.because:
        text = f"the model reaches tools through the meta tools: {offered_tools.because}"
        yield NewChatEvent(Kind.NOTE, {"text": text, "hint": None})
    for trouble in offered_tools.unavailable_servers:
        text = f"the tools of {trouble.server} cannot be listed: {trouble.cause}"
        yield NewChatEvent(Kind.NOTE, {"text": text, "hint": trouble.hint})


def _collect_call_ids(events: Iterable[ChatEvent]) -> set[str]:
    return {str(event.body.get("id")) for event in events if event.kind is Kind.CALL}
