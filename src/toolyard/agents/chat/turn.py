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

from toolyard.agents.chat.chat_settings import ChatRules
from toolyard.agents.chat.elicitation import Questions
from toolyard.agents.chat.elicitation_request import Sampling
from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.event_writer import Scribe
from toolyard.agents.chat.storage import ApprovalStore, ChatStore
from toolyard.agents.chat.tool_set import Kit, Toolbox
from toolyard.agents.chat.turn_calls import Calling, call_event
from toolyard.agents.chat.turn_end import Ended, closing
from toolyard.agents.chat.turn_limits import may_ask, repeated
from toolyard.agents.chat.turn_log import Record, read_chat, read_turn, seqs_kept
from toolyard.agents.chat.turn_snapshot import step_part
from toolyard.agents.models.available_models import Models
from toolyard.errors import ToolyardError
from toolyard.meta import RESULT_READ
from toolyard.types.chat import Chat, Ending, Event, Kind, NewEvent, TurnState

if TYPE_CHECKING:
    from toolyard.agents.chat.model_conversation import Talk

__all__ = ["TALKING", "Desk", "Turn", "close_turn", "wanted_model"]

log = logging.getLogger("toolyard.chat")

TALKING = ("toolyard.agents.chat.sampling", "toolyard.agents.chat.model_conversation")
"""Modules that talk to models: they need an extra, and are slow to load."""

_ENDING = 10.0
"""Seconds that the last write of a turn may take."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What every turn of a process works with."""

    store: ChatStore
    approvals: ApprovalStore
    models: Models
    questions: Questions
    rules: ChatRules
    runner: str
    clock: Callable[[], float]


class Turn:
    """A turn of a chat that this process holds."""

    def __init__(self, desk: Desk, chat: Chat, number: int, toolbox: Toolbox) -> None:
        self._desk = desk
        self._chat = chat
        self._number = number
        self._toolbox = toolbox
        self._scribe = Scribe(desk.store, chat.id, desk.runner)
        self._why: Ended | None = None
        self._work: asyncio.Task[Ended | None] | None = None

    def stop(self, why: Ended) -> None:
        """End the model's answer and the tools; ``run`` returns when that is done and written down."""
        self._why = self._why or why
        if self._work is not None:
            self._work.cancel()

    async def run(self) -> None:
        """Go on until the turn is over, or waits for the person. Never raises for what goes wrong in it."""
        if self._why is None:
            self._work = asyncio.get_running_loop().create_task(self._go_on())
            try:
                await asyncio.wait({self._work})
            finally:
                self._work.cancel()
        ended = self._outcome()
        # A task that was cancelled keeps its frames, and these keep the turn with all that was said.
        self._work = None
        if ended is not None:
            await self._end(ended)

    def _outcome(self) -> Ended | None:
        """How it ended; None where it goes on some other time, or elsewhere."""
        if self._work is None or self._work.cancelled():
            return self._why or Ended(Ending.INTERRUPTED)
        error = self._work.exception()
        if error is None:
            return self._work.result()
        if isinstance(error, NotHeld):
            return None
        if isinstance(error, ToolyardError):
            return Ended(Ending.FAILED, error.cause, error.hint)
        # The top of a task: what we did wrong is for the log.
        log.error("a turn of chat %s failed", self._chat.id, exc_info=error)
        return Ended(Ending.FAILED, "the turn failed inside Toolyard", "its log says why; you can try again")

    async def _end(self, ended: Ended) -> None:
        try:
            async with asyncio.timeout(_ENDING):
                try:
                    await self._scribe.settle()
                except NotHeld:
                    return
                except ToolyardError as error:
                    log.warning("chat %s: not all pieces were kept: %s", self._chat.id, error.cause)
                await close_turn(self._desk, self._chat.id, self._number, ended)
        except NotHeld:
            pass
        except (ToolyardError, TimeoutError) as error:
            # Whoever looks after the house ends it later.
            log.warning("the end of a turn of chat %s could not be written: %s", self._chat.id, error)

    # What a turn does.

    async def _go_on(self) -> Ended | None:
        events = await read_turn(self._desk.store, self._chat.id, self._number)
        record = Record(self._scribe, events)
        if record.standing().by_hand:
            return await self._by_hand(record)
        return await self._converse(record)

    async def _by_hand(self, record: Record) -> Ended | None:
        toolbox, asked = self._toolbox.as_person(), record.events[0].body
        name, arguments = str(asked["name"]), asked["arguments"]
        await toolbox.locate(name)
        if not record.standing().calls:
            await record.append([call_event(toolbox, f"call_{secrets.token_hex(8)}", name, arguments)])
        answered = await self._calling(record, toolbox).answer(record.standing())
        return Ended(Ending.DONE) if answered else None

    async def _converse(self, record: Record) -> Ended | None:
        agent, most = self._toolbox.agent, self._desk.rules
        earlier = await read_chat(self._desk.store, self._chat.id, before=self._number)
        talk = await self._talk(record, earlier)
        calling = self._calling(record, self._toolbox)
        used = _call_ids(earlier)
        while True:
            standing = record.standing()
            if standing.calls:
                if (limit := repeated(standing)) is not None:
                    return limit
                if not await calling.answer(standing):
                    return None
                continue
            if (limit := may_ask(standing, most, None if agent is None else agent.max_steps)) is not None:
                return limit
            if any(event.kind is Kind.RESULT and event.body.get("handle") for event in record.events):
                talk.also(RESULT_READ)
            part = step_part(standing.steps + 1)
            messages = talk.messages(record.events, record.kept)
            if notes := talk.left_out(record.events):
                await record.append(notes)
            spoken = await talk.ask(messages, used | _call_ids(record.events), part, self._scribe)
            calls = [call_event(self._toolbox, each.id, each.name, each.arguments) for each in spoken.calls]
            await record.append([*spoken.events, *calls])
            if not calls:
                return Ended(Ending.DONE)

    async def _talk(self, record: Record, earlier: list[Event]) -> Talk:
        """The conversation with the model, from all that was said before. Raises a ModelError."""
        picked = self._desk.models.pick(wanted_model(self._chat, self._toolbox))
        kit = await self._toolbox.kit()
        if record.standing().steps == 0 and (notes := list(_notes(kit))):
            await record.append(notes)
        await self._desk.models.loading.loaded(*TALKING)
        from toolyard.agents.chat.model_conversation import Talk  # see TALKING

        kept = await self._desk.store.kept_of(self._chat.id, seqs_kept([*earlier, *record.events]))
        record.kept |= {event.seq: kept[event.seq] for event in record.events if event.seq in kept}
        again: Any = record.events[0].body.get("again")
        window = await picked.window()
        agent = self._toolbox.agent
        # A long chat takes a moment to read; others need not wait for that.
        return await asyncio.to_thread(Talk, picked, kit.tools, agent, earlier, kept, again, window)

    def _calling(self, record: Record, toolbox: Toolbox) -> Calling:
        desk = self._desk
        sample = self._sample if desk.models.choices else None
        return Calling(record, toolbox, desk.approvals, desk.questions, desk.rules, sample, desk.clock)

    async def _sample(self, request: Sampling) -> Mapping[str, Any]:
        picked = self._desk.models.pick(wanted_model(self._chat, self._toolbox))
        await self._desk.models.loading.loaded(*TALKING)
        from toolyard.agents.chat.sampling import sampled  # see TALKING

        return await sampled(request, picked, self._scribe)


def wanted_model(chat: Chat, toolbox: Toolbox) -> str | None:
    """The model that a chat's next request goes to: its own, else its agent's; None: the usual one."""
    return chat.model or (None if toolbox.agent is None else toolbox.agent.model)


async def close_turn(desk: Desk, chat_id: str, number: int, ended: Ended) -> None:
    """End a turn that this process holds, with all that its events lack, and let go of the chat. Raises
    NotHeld, or what the store raises."""
    events = await read_turn(desk.store, chat_id, number)
    last = closing(events, ended, desk.clock())
    if last:
        await desk.store.append(chat_id, desk.runner, last, then=TurnState.IDLE)


def _notes(kit: Kit) -> Iterator[NewEvent]:
    """What the person should know about the tools of this turn."""
    if kit.because:
        text = f"the model reaches tools through the meta tools: {kit.because}"
        yield NewEvent(Kind.NOTE, {"text": text, "hint": None})
    for trouble in kit.troubles:
        text = f"the tools of {trouble.server} cannot be listed: {trouble.cause}"
        yield NewEvent(Kind.NOTE, {"text": text, "hint": trouble.hint})


def _call_ids(events: Iterable[Event]) -> set[str]:
    return {str(event.body.get("id")) for event in events if event.kind is Kind.CALL}
