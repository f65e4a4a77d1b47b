"""Chats over the real store, with a model that follows a script and real servers."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.sqlite_template import copy_template

from toolyard.agents.chat.approval_grants import Approver
from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.errors import ChatRefused
from toolyard.agents.chat.tool_set import ToolSet
from toolyard.agents.chat.turn_limits import ChatLimits
from toolyard.agents.models.available_models import Models
from toolyard.clients import Callbacks
from toolyard.config import load_settings, parse_config
from toolyard.core.composition import Core, build_core
from toolyard.policy import select_bundles
from toolyard.store import Database
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, Surface
from toolyard.types.chat import TRANSIENT_KINDS, Chat, ChatEvent, Kind, TurnState

SERVERS = Path(__file__).parents[2] / "servers"
KEY = "a key for tests, long enough"
ME = LOCAL_PRINCIPAL.id


# The model.


@dataclass
class Model:
    """The fake model, and the requests that it received."""

    url: str

    def _ask(self, path: str, method: str) -> Any:
        request = urllib.request.Request(f"{self.url}{path}", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    async def journal(self) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self._ask, "/journal", "GET")

    async def release(self) -> None:
        """Release a held answer, once there is one."""
        async with asyncio.timeout(30):
            while not (await asyncio.to_thread(self._ask, "/release", "POST"))["released"]:
                await asyncio.sleep(0.01)


# The yard.


@dataclass
class FakeChatBackend:
    """A ChatYard in which everybody has the same servers. Users in ``gone`` have no account."""

    core: Core
    bundles: Mapping[str, Any]
    agents: Mapping[str, Agent]
    gone: set[str] = field(default_factory=set[str])
    left: list[str] = field(default_factory=list[str])
    loads: int = 0
    """The number of times that tools were loaded."""
    callers: dict[object, Caller] = field(default_factory=dict[object, Caller])

    async def load_tool_set(
        self, owner: str, chat: Chat | None, agent: Agent | None = None, user: object = None
    ) -> ToolSet:
        self.loads += 1
        if owner in self.gone:
            raise ChatRefused("the owner of this chat has no account any more")
        id, name, tools = (None, None, None) if chat is None else (chat.id, chat.agent, chat.choice)
        agent = None
        if name is not None and (agent := self.agents.get(name)) is None:
            raise ChatRefused(f"unknown agent '{name}'")
        principal = LOCAL_PRINCIPAL if owner == ME else Principal(owner)
        bundles = select_bundles(() if agent is None else agent.bundles, self.bundles)
        choice = None if tools is None else frozenset(tools)
        key = (principal, name, choice, id)
        if key not in self.callers:
            caller = Caller(principal, Surface.MODEL_DIRECT, agent, bundles, choice, chat=id)
            self.callers[key] = caller
        core = self.core
        return ToolSet(core.manager, core.tool_directory, core.call_path, core.meta_tools, self.callers[key])

    async def release_chat(self, chat_id: str) -> None:
        self.left.append(chat_id)
        await self.core.manager.release_connections(chat_id)


@dataclass
class ChatProcess:
    """The chats of one process. Another one may be opened on the same data."""

    database: Database
    core: Core
    models: Models
    yard: FakeChatBackend
    chats: ChatService
    journal: Path

    def calls(self) -> list[str]:
        """Return the actions of the server, one per line."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    async def chat(self, **options: Any) -> Chat:
        return await self.chats.create(ME, **options)

    async def say(self, chat: Chat, *lines: str) -> list[ChatEvent]:
        """Send a script for the model, and wait for the end of the turn."""
        return await self.over(chat, await self.chats.send(ME, chat.id, "\n".join(lines)))

    async def run(self, chat: Chat, name: str, **arguments: Any) -> list[ChatEvent]:
        return await self.over(chat, await self.chats.run_tool(ME, chat.id, name, arguments))

    async def over(self, chat: Chat, turn: int) -> list[ChatEvent]:
        """Return the events of a turn, once it has ended."""
        return await self.until(chat, turn, lambda events: events[-1].kind is Kind.END)

    async def waits(self, chat: Chat, turn: int) -> list[ChatEvent]:
        """Return the events of a turn, once it waits for approvals."""
        await self.until(
            chat, turn, lambda events: any(each.kind is Kind.APPROVAL_REQUEST for each in events)
        )
        async with asyncio.timeout(30):
            while (await self.chats.get(chat.owner, chat.id)).state is not TurnState.WAITING:
                await asyncio.sleep(0.01)
        return list(await self.chats.list_events(chat.owner, chat.id, after=turn - 1))

    async def until(self, chat: Chat, turn: int, enough: Callable[[list[ChatEvent]], Any]) -> list[ChatEvent]:
        """Return the events from a turn on, once there are enough."""
        async with asyncio.timeout(30):
            chat_events: list[ChatEvent] = []
            while not chat_events or not enough(chat_events):
                after = chat_events[-1].seq if chat_events else turn - 1
                chat_events += await self.database.chats.wait_for_events(chat.id, after, 30)
        return list(await self.chats.list_events(chat.owner, chat.id, after=turn - 1, limit=10_000))

    async def close(self) -> None:
        await self.chats.close()
        await self.core.close()
        await self.models.close()
        await self.database.close()


async def open_chat_process(
    data: Path,
    journal: Path,
    model_url: str,
    *,
    agents: Sequence[Agent] = (),
    servers: Mapping[str, Any] | None = None,
    bundles: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
    url: str | None = None,
    everybodys: bool = False,
    writes_titles: bool = False,
    **settings: Any,
) -> ChatProcess:
    """Open chats with the server ``s`` and the model ``fake``, unless others are named."""
    known_settings = load_settings(
        data,
        env={},
        overrides={
            "models": {"fake": fake_model(model_url)} if models is None else models,
            "write_tools": "ask",
            **settings,
        },
    )
    server_configs = {"s": chat_server(journal)} if servers is None else servers
    config = parse_config({"mcpServers": server_configs, "bundles": bundles or {}}, env={})
    if url is None:
        copy_template(data)
    database = await Database.open(data, url=url, secret_key=KEY)
    chosen_models, services = Models.from_settings(known_settings), list[ChatService]()

    def callbacks(principal: Principal, chat: str | None) -> Callbacks:
        questions = services[0].questions

        async def elicit(server_id: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            return await questions.elicit(principal.id, server_id, params, chat_id=chat)

        async def sample(server_id: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            return await questions.sample(principal.id, server_id, params, chat_id=chat)

        return Callbacks(elicit, elicitation_urls=True, sampling=sample)

    approve = Approver(database.approvals)
    core = build_core(
        config,
        known_settings,
        data_dir=data,
        approve=approve,
        callbacks_for=callbacks,
        with_native_tools=True,
    )
    yard = FakeChatBackend(core, config.bundles, {agent.id: agent for agent in agents})
    bounds = replace(ChatLimits.from_settings(known_settings), **(rules or {}))
    services.append(
        ChatService(
            database.chats, database.approvals, chosen_models, yard, bounds, writes_titles=writes_titles
        )
    )
    process = ChatProcess(database, core, chosen_models, yard, services[0], journal)
    await process.chats.open(resume_any_chat=everybodys)
    return process


def chat_server(journal: Path, **more: Any) -> dict[str, Any]:
    """Return the entry of the server ``s``."""
    words = ["-I", "-S", str(SERVERS / "chat_server.py"), str(journal)]
    return {"command": sys.executable, "args": words, **more}


def fake_model(url: str, **more: Any) -> dict[str, Any]:
    """Return the entry of the model."""
    return {"model": "openai:fake-1", "base_url": f"{url}/v1", "api_key": "good", "sees": True, **more}


def kinds(events: Iterable[ChatEvent]) -> list[str]:
    """Return the kinds of events, without pieces, usage and notes."""
    return [e.kind.value for e in events if e.kind not in {*TRANSIENT_KINDS, Kind.USAGE, Kind.NOTE}]


def bodies_of_kind(events: Iterable[ChatEvent], kind: Kind) -> list[dict[str, Any]]:
    """Return the bodies of the events of one kind."""
    return [dict(event.body) for event in events if event.kind is kind]


def has_one_result_per_call(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether each call in a model request is followed directly by exactly one result."""
    pending_names: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in pending_names:
                return False
            pending_names.remove(message["tool_call_id"])
        elif pending_names:
            return False
        else:
            pending_names = [call["id"] for call in message.get("tool_calls") or ()]
    return not pending_names
