"""What chats need of a database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from toolyard.types.approval import Approval, Grant
from toolyard.types.chat import Chat, ChatEvent, NewChatEvent, TurnState
from toolyard.types.tool import JsonObject

__all__ = ["ApprovalStore", "ChatStore"]


class ChatStore(Protocol):
    """Chats and their events. Every method that names an owner knows nothing of the chats of others."""

    # Chats.

    async def create(self, chat: Chat) -> None: ...

    async def get(self, owner: str, chat_id: str) -> Chat | None: ...

    async def chats(
        self,
        owner: str,
        *,
        search_text: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Chat]:
        """The one that changed last first. ``words`` are looked for in titles and in what was said.
        ``before`` is ``(updated_at, id)`` of the last one seen."""
        ...

    async def change(self, chat: Chat) -> bool:
        """Store title, agent, model and choice of the owner's chat; nothing else. False: there is none."""
        ...

    async def delete(self, owner: str, chat_id: str) -> bool: ...

    # Events.

    async def list_events(self, chat_id: str, *, after: int = 0, limit: int = 1_000) -> Sequence[ChatEvent]:
        """In order. Whoever asks has seen that the chat is theirs."""
        ...

    async def list_latest_events(
        self, chat_id: str, *, before: int | None = None, limit: int = 200
    ) -> Sequence[ChatEvent]:
        """The last ``limit`` events, in order, of those before a number: for a page that opens at the end.
        Begins with the event that began a turn, so it may give more, or a few less."""
        ...

    async def wait_for_events(self, chat_id: str, after: int, seconds: float) -> Sequence[ChatEvent]:
        """Events after a number, in order, as soon as there are any; none when so many seconds are over.
        Told at once of what this process appends, and soon of what others do. Raises NoSuchChat as soon as
        there is no such chat."""
        ...

    async def kept(self, chat_id: str, seq: int) -> bytes | None:
        """What was kept aside with an event."""
        ...

    async def get_kept_data_by_seq(self, chat_id: str, seqs: Sequence[int]) -> Mapping[int, bytes]:
        """What was kept aside with many events, by their numbers; those that kept nothing are left out."""
        ...

    # Turns. At most one is running in a chat, and one runner holds it.

    async def claim(
        self,
        chat_id: str,
        runner: str,
        expected_state: TurnState,
        events: Sequence[NewChatEvent],
        *,
        new_turn: bool,
    ) -> Sequence[ChatEvent] | None:
        """Take a chat that is in the state ``was`` and append to it. ``new_turn``: the first of the events
        begins one. None: it is in another state, or there is no such chat."""
        ...

    async def append(
        self,
        chat_id: str,
        runner: str,
        events: Sequence[NewChatEvent],
        *,
        next_state: TurnState = TurnState.RUNNING,
    ) -> Sequence[ChatEvent]:
        """Append to a chat that the runner holds; they are on the disk afterwards. ``then`` other than
        RUNNING lets go of it in the same write. Many who append at the same time share one write.
        Raises NotHeld."""
        ...

    async def append_without_claim(self, chat_id: str, events: Sequence[NewChatEvent]) -> Sequence[ChatEvent]:
        """Append to a chat whoever holds it, to its last turn: an answer that a person gave."""
        ...

    async def record_heartbeat(self, runner: str) -> None:
        """The runner is alive: all that it holds is held from now."""
        ...

    async def find_abandoned(self, is_gone: Callable[[str, float], bool]) -> Sequence[Chat]:
        """Running chats of which ``gone(runner, seconds since its last beat)`` is true."""
        ...

    async def find_resumable(self) -> Sequence[Chat]:
        """Chats that wait, of which no approval does."""
        ...

    async def take_over(self, chat_id: str, runner: str, previous_runner: str) -> bool:
        """Hold a running chat in place of a runner that is gone. False: somebody else was first."""
        ...

    async def get_runner(self, chat_id: str) -> str | None:
        """Who holds it."""
        ...

    async def request_stop(self, chat_id: str) -> None:
        """Tell whoever holds the chat."""
        ...

    def listen_for_stop_requests(self) -> AsyncIterator[str]:
        """Ids of chats that somebody, in any process, asked to stop, as it happens. Never ends by itself."""
        ...


class ApprovalStore(Protocol):
    """Questions about calls, and what was granted."""

    async def add(self, approval: Approval) -> None: ...

    async def find(self, owner: str, approval_id: str) -> Approval | None: ...

    async def waiting(self, owner: str) -> Sequence[Approval]:
        """Not answered yet, the oldest first."""
        ...

    async def answer(
        self, owner: str, approval_id: str, *, yes: bool, at: float, grant: Grant | None
    ) -> bool:
        """Answer one that waits, and store what follows from it. False: it was answered already, or there is
        none such."""
        ...

    async def list_grants(self, owner: str, now: float) -> Sequence[Grant]:
        """Those that still count."""
        ...

    async def revoke(self, owner: str, grant_id: str) -> bool: ...

    async def use_grant(
        self,
        owner: str,
        tool: str,
        definition_hash: str,
        fits: Callable[[JsonObject], bool],
        chat_id: str | None,
        now: float,
    ) -> Grant | None:
        """A grant that covers a call; ``fits`` says of a predicate whether the arguments satisfy it. One that
        is good for a number of calls is used up by one. Nothing is used twice."""
        ...
