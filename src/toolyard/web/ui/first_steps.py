"""First steps of a person on the home page. Each is done when the data says so, not when it was clicked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Response

from toolyard.accounts import AccountService
from toolyard.agents.chat.chats import ChatService
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.core.current_config import CurrentConfig
from toolyard.core.local_clients import has_local_client
from toolyard.registry import Registry
from toolyard.store.repositories.accounts import SqlAccountStorage
from toolyard.store.repositories.usage import SqlUsage
from toolyard.types.account import RequestUser
from toolyard.types.server import Server, StdioSpec
from toolyard.web import service_dependencies as deps
from toolyard.web.access.services import uses
from toolyard.web.routes import Routes
from toolyard.web.ui.components import responses

__all__ = ["FirstStep", "FirstSteps", "FirstStepsDep", "router"]

router = Routes()

_EXAMPLE_PATTERN = re.compile(r"toolyard[./]cli[./](demo|playground)_server(\.py)?$")


@dataclass(frozen=True, slots=True)
class FirstStep:
    """A step, with the page on which it is done."""

    title: str
    text: str
    href: str
    verb: str
    done: bool


class FirstSteps:
    """Finds out which steps a person has done."""

    def __init__(
        self,
        config: CurrentConfig,
        settings: Settings,
        registry: Registry,
        people: AccountService,
        accounts: SqlAccountStorage,
        usage: SqlUsage,
        chats: ChatService,
        data_dir: Path,
    ) -> None:
        self._config = config
        self._has_accounts = settings.people_mode is not PeopleMode.NONE
        self._registry = registry
        self._people = people
        self._accounts = accounts
        self._usage = usage
        self._chats = chats
        self._data_dir = data_dir

    async def list(self, me: RequestUser, *, has_instances: bool) -> list[FirstStep]:
        """Return the steps of this person; none if all are done, now or before, or if they hid them."""
        if me.user.first_steps_hidden_at is not None:
            return []
        steps = await self._build_steps(me, has_instances=has_instances)
        if all(step.done for step in steps):
            await self._people.hide_first_steps(me.user)
            return []
        return steps

    async def show(self, me: RequestUser) -> bool:
        """Show hidden steps again. Return False if there is nothing to show, because all are done."""
        has_instances = bool(await self._registry.list_instances(me.user.id))
        if all(step.done for step in await self._build_steps(me, has_instances=has_instances)):
            return False
        await self._people.show_first_steps(me.user)
        return True

    async def _build_steps(self, me: RequestUser, *, has_instances: bool) -> list[FirstStep]:
        has_registry_servers = has_instances or bool(await self._registry.list_servers())
        has_file_servers = bool(self._config.configuration.servers)
        try_tool = FirstStep(
            "Try a tool",
            "Find a tool, fill in its form, and see the result.",
            "/ui/chat?run=",
            "Run a tool",
            await self._usage.has_calls(me.user.id),
        )
        steps = [try_tool, self._build_editor_step(me)]
        if me.is_admin:
            add_server = FirstStep(
                "Add a server",
                "Choose one of the catalogue, paste a URL, or bring those of your other clients with the"
                " command toolyard import.",
                "/ui/catalog",
                "Open catalogue",
                has_registry_servers or _has_own_server(self._config.configuration.servers.values()),
            )
            steps[1:1] = [add_server, self._build_model_step(me)]
            if not has_registry_servers and not has_file_servers:
                # There is no tool to try before.
                steps[:2] = [add_server, try_tool]
            if self._has_accounts:
                steps.append(await self._build_invite_step())
        elif has_registry_servers:
            text = "Choose a server and sign in to use its tools."
            connect = FirstStep("Connect to a server", text, "/ui/mcp/new", "Choose a server", has_instances)
            steps.insert(1 if has_file_servers else 0, connect)
        return steps

    def _build_editor_step(self, me: RequestUser) -> FirstStep:
        is_done = me.user.client_seen_at is not None or (
            not self._has_accounts and has_local_client(self._data_dir)
        )
        text = "One entry gives Claude Code, Cursor, VS Code and other clients all your servers."
        return FirstStep("Connect your editor", text, "/ui/connect", "Show entry", is_done)

    def _build_model_step(self, me: RequestUser) -> FirstStep:
        text = "Chats use it. Any provider, OpenAI-compatible endpoint or local model will do."
        is_done = bool(self._chats.models.choices_for(me.user.principal))
        return FirstStep("Choose a model", text, "/ui/admin/models/new", "Add a model", is_done)

    async def _build_invite_step(self) -> FirstStep:
        text = "Each person has their own connections, chats and approvals."
        is_done = await self._accounts.has_several_users()
        return FirstStep("Invite people", text, "/ui/admin/people", "Invite", is_done)


FirstStepsDep = Annotated[FirstSteps, uses(FirstSteps)]


def _has_own_server(servers: Iterable[Server]) -> bool:
    """Return whether there is a server other than the examples of ``make run`` and ``toolyard demo``."""
    return any(
        not (isinstance(each.transport, StdioSpec) and any(map(_EXAMPLE_PATTERN.search, each.transport.args)))
        for each in servers
    )


@router.post("/ui/first-steps/hide")
async def hide_first_steps(me: deps.BrowserUser, people: deps.PeopleDep) -> Response:
    """Stop showing the first steps to this person."""
    await people.hide_first_steps(me.user)
    return responses.redirect_to("/ui/")


@router.post("/ui/first-steps/show")
async def show_first_steps(me: deps.BrowserUser, first_steps: FirstStepsDep) -> Response:
    """Show the first steps to this person again, unless all are done."""
    is_shown = await first_steps.show(me)
    return responses.redirect_to("/ui/", None if is_shown else "You have done all first steps.")
