"""Content of a chat's page: turns, list of chats, settings, the message form and lost sign-ins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Depends, Request, Response
from markupsafe import Markup
from starlette.responses import HTMLResponse

from toolyard.agents.chat.turn_snapshot import ChatSnapshot, TurnSnapshot
from toolyard.agents.models.model_ref import ModelChoice
from toolyard.clients import ConnectionManager
from toolyard.clients.call_path import CallPath
from toolyard.core.agents import AgentRoster
from toolyard.core.caller_cache import CallerCache
from toolyard.core.current_config import CurrentConfig
from toolyard.core.instance_sync import InstanceSync
from toolyard.errors import ToolyardError
from toolyard.store.repositories.attachments import AttachmentLimits
from toolyard.types.account import RequestUser
from toolyard.types.agent import Agent
from toolyard.types.approval import PendingKind
from toolyard.types.call import Caller, Surface
from toolyard.types.chat import Chat, ChatEvent, TurnTree, UserMessage
from toolyard.types.registry import AuthKind, InstanceState
from toolyard.types.server import State
from toolyard.web import service_dependencies as deps
from toolyard.web.rendering.renderer import DeferredMarkdown
from toolyard.web.servers.config_sign_ins import ConfigServerSignIns
from toolyard.web.service_lookup import SERVICE
from toolyard.web.ui.chat import fragments
from toolyard.web.ui.chat.actions import ChatFormState
from toolyard.web.ui.chat.tool_console import ToolConsole
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.tools.schema_form import ToolForm

__all__ = ["ChatList", "ChatPageContext", "ChatPages", "ChatPagesDep", "ChatSettings", "ReconnectBanner"]

_MAX_TURNS = 40
"""Number of turns on a page. Earlier ones are loaded as the reader scrolls, or by a link."""
_MAX_EVENTS, _MAX_EVENTS_AT_END = 200, 24
"""Number of events after which no further turn is added. The end of a chat has fewer, so that it opens
quickly: about three turns with tool calls."""
_MAX_LISTED_CHATS = 40


@dataclass(frozen=True, slots=True)
class ChatList:
    """One page of a person's chats."""

    chats: Sequence[Chat]
    words: str
    older: str | None
    """Query string of the page with older chats; None on the last page."""
    here: str | None
    """Id of the chat that is open."""
    waiting: frozenset[str]
    """Ids of the chats that wait for an approval or an answer."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Agent and model of a chat, and the ones available."""

    chat: Chat | None
    agents: Sequence[Agent]
    models: Sequence[ModelChoice]
    agent: str
    model: str
    default_model: str
    """Label of the model that is used if none is chosen."""
    default_sees: bool
    """True if that model accepts pictures."""

    @property
    def chosen_agent(self) -> Agent | None:
        """The agent of the chat; None if it has none, or its agent no longer exists."""
        return next((each for each in self.agents if each.id == self.agent), None)

    @property
    def is_agent_gone(self) -> bool:
        """True if the agent of the chat no longer exists for its user."""
        return bool(self.agent) and self.chosen_agent is None


@dataclass(frozen=True, slots=True)
class ChatPageContext:
    """Content of the page of a chat, or of a new one."""

    chat: Chat | None
    turns: Markup
    last: int
    state: str
    earlier: int | None
    """Number of the first turn that is shown; None if that is the first turn."""
    newest: bool
    """True if the end of the chat is shown."""
    list: ChatList
    settings: ChatSettings
    filled: ChatFormState
    console: ToolConsole | None
    """Tool console, shown in place of the message form."""
    quota_notice: str | None
    """Warning if the user's chats are close to a limit."""
    reconnect: Markup
    """Banner about servers that need a new sign-in."""
    attachment_limits: AttachmentLimits
    context: Markup
    """Bar that shows how full the model's context window is."""

    @property
    def action(self) -> str:
        """URL that receives its forms."""
        return "/ui/chat" if self.chat is None else f"/ui/chat/{self.chat.id}"

    @property
    def has_model(self) -> bool:
        """True if a chat model is configured."""
        return bool(self.settings.models)


@dataclass(frozen=True, slots=True)
class LostSignIn:
    """A server that was connected before, and needs a new sign-in or key."""

    label: str
    url: str
    """Starts the sign-in, or shows the form for the key."""
    needs_key: bool = False


@dataclass(frozen=True, slots=True)
class ReconnectBanner:
    """Finds the lost sign-ins of a chat's user. Servers that were never connected are not among them."""

    config: CurrentConfig
    roster: AgentRoster
    callers: CallerCache
    instances: InstanceSync
    manager: ConnectionManager
    call_path: CallPath
    server_sign_ins: ConfigServerSignIns

    async def render(self, me: RequestUser, chat: Chat | None) -> Markup:
        """Return the HTML of the banner: an empty element if every server that the chat uses is connected."""
        back = "/ui/chat" if chat is None else f"/ui/chat/{chat.id}"
        return responses.get_macros("chat_parts.html").reconnect(
            await self._list_lost_sign_ins(me, chat), back
        )

    async def _list_lost_sign_ins(self, me: RequestUser, chat: Chat | None) -> Sequence[LostSignIn]:
        lost_instances = [
            (instance, registered)
            for instance, registered in await self.instances.sync(me.principal)
            if instance.state is InstanceState.NEEDS_REAUTH and instance.enabled and registered.enabled
        ]
        lost_servers = [
            server
            for server in self.config.configuration.servers.values()
            if self.manager.state(server.id, me.principal) is State.NEEDS_AUTH
        ]
        if not lost_instances and not lost_servers:
            return ()
        caller, lost = await self._find_caller(me, chat), list[LostSignIn]()
        for instance, registered in lost_instances:
            if self.call_path.can_reach(instance.core_id, caller):
                choice = registered.find_choice(instance.choice_id)
                needs_key = choice is None or choice.kind is not AuthKind.OAUTH
                path = f"/ui/mcp/{instance.id}/{'edit' if needs_key else 'connect'}"
                lost.append(LostSignIn(instance.name, path, needs_key))
        for server in lost_servers:
            if self.call_path.can_reach(server.id, caller):
                _, was_signed_in = await self.server_sign_ins.get_sign_in_action(me, server, "needs_auth")
                if was_signed_in:
                    path = f"/ui/servers/{quote(server.id, safe='')}/connect"
                    lost.append(LostSignIn(server.label or server.id, path))
        return lost

    async def _find_caller(self, me: RequestUser, chat: Chat | None) -> Caller:
        """Return the caller of the chat's agent, or that of the user if there is none."""
        if chat is not None and chat.agent is not None:
            try:
                agent = await self.roster.find(me.user.id, chat.agent)
                return self.callers.get(me, agent, chat_surface=Surface.MODEL_META)
            except ToolyardError:
                # The agent was removed, which the page says elsewhere.
                pass
        return self.callers.get(me)


@dataclass(frozen=True, slots=True)
class ChatPages:
    """Builds and renders the pages of chats for one request. A chat that is None is a new one."""

    request: Request
    me: deps.CurrentUser
    roster: deps.AgentRosterDep
    chat_store: deps.ChatStoreDep
    chats: deps.ChatsDep
    markdown: deps.MarkdownDep
    pending: deps.PendingItemsDep
    banner: Annotated[ReconnectBanner, SERVICE]
    audit: deps.AuditDep
    server_records: deps.ServerRecordsDep

    @property
    def find_icon_path(self) -> Callable[[str], str]:
        """A function that finds the path of the icon of one of the person's servers."""
        return partial(self.server_records.find_icon_path, self.me.principal)

    async def render(
        self, chat: Chat | None, form_state: ChatFormState | None = None, status: int = 200
    ) -> Response:
        """Render the page of a chat.

        The query selects earlier turns, the list of chats, the console and the agent.
        """
        query, form_state = self.request.query_params, form_state or ChatFormState()
        chats = self.chats
        user_id = self.me.user.id
        view, earlier, before = ChatSnapshot(), None, forms.parse_number(query.get("before"), 17)
        if not form_state.attachments and "attachment" in query:
            unsent = await chats.attachments.list_unsent(user_id, query.getlist("attachment")[:100])
            form_state = replace(form_state, attachments=unsent)
        tree, edited_turn = TurnTree(), forms.parse_number(query.get("edit"), 17)
        if chat is not None:
            view, earlier, tree = await self.load_view(chat, before)
        if chat is not None and edited_turn is not None:
            start = await chats.get_turn_start(user_id, chat.id, edited_turn)
            if isinstance(start, UserMessage):
                form_state = replace(
                    form_state,
                    text=start.text,
                    edited_turn=edited_turn,
                    edited_parent=tree.parents.get(edited_turn, 0),
                    edited_attachments=start.attachments,
                )
        agent = form_state.agent or query.get("agent", "")
        page = ChatPageContext(
            chat,
            await self.render_turns(view.turns, self.build_frame(chat, tree, form_state)),
            max(view.last, chat.last if chat is not None and before is None else 0),
            view.state if before is None else "idle",
            earlier,
            before is None,
            await self._load_list(query, chat),
            await self._build_settings(chat, agent, form_state.model),
            form_state,
            form_state.console or self._choose_console(chat, query),
            await self.chat_store.quota_notice(user_id),
            await self.banner.render(self.me, chat),
            chats.attachments.limits,
            fragments.render_context_bar(fragments.find_context_usage(view.turns)),
        )
        return responses.render_page(self.request, "chat.html", status=status, page=page)

    async def render_settings(self, chat: Chat) -> Response:
        """Render agent and model of a chat, for the script."""
        settings = await self._build_settings(chat)
        return HTMLResponse(responses.get_macros("chat_settings.html").settings(settings))

    async def render_turns(self, turns: Sequence[TurnSnapshot], frame: fragments.FragmentContext) -> Markup:
        """Return the HTML of turns. They are rendered in a thread, because a long answer takes seconds."""
        # Markdown is rendered in one batch after all turns, which contain placeholders until then.
        deferred = DeferredMarkdown(self.markdown)
        deferred_frame = replace(frame, to_html=deferred)
        core = await asyncio.to_thread(
            lambda: [fragments.render_turn(turn, deferred_frame) for turn in turns]
        )
        return Markup("\n".join(await deferred.fill(core)))

    def build_frame(
        self,
        chat: Chat | None,
        tree: TurnTree = TurnTree(),  # noqa: B008 - frozen
        form_state: ChatFormState | None = None,
    ) -> fragments.FragmentContext:
        """Return the context for rendering the parts of the page."""
        question_forms: dict[str, ToolForm] = {}
        if form_state is not None and form_state.question is not None and form_state.form is not None:
            question_forms = {form_state.question.key: form_state.form}
        chat_id = "" if chat is None else chat.id
        return fragments.FragmentContext(
            chat_id, self.me.csrf, question_forms, tree=tree, find_icon_path=self.find_icon_path
        )

    async def load_view(self, chat: Chat, before: int | None) -> tuple[ChatSnapshot, int | None, TurnTree]:
        """Return the last turns of the chosen branch before an event number, the number of the first of them
        if there are earlier ones, and all turns."""
        limit = _MAX_EVENTS_AT_END if before is None else _MAX_EVENTS
        events = await self.chats.list_latest_events(
            chat.owner, chat.id, last_turn=chat.turn, before=before, limit=limit
        )
        shown, tree = _limit_turns(events), await self.chats.get_turn_tree(chat.owner, chat.id)
        first = shown[0].seq if shown else 0
        return ChatSnapshot.from_events(shown), first if tree.parents.get(first) else None, tree

    async def _load_list(self, query: Mapping[str, str], current_chat: Chat | None) -> ChatList:
        """Return the chats that the query selects."""
        # PostgreSQL rejects NUL characters in text.
        words = query.get("q", "").strip()[:200].replace("\0", "")
        found = await self.chats.list(
            self.me.user.id,
            search_text=words or None,
            before=_parse_list_position(query.get("older", "")),
            limit=_MAX_LISTED_CHATS + 1,
        )
        shown, older = found[:_MAX_LISTED_CHATS], None
        if len(found) > _MAX_LISTED_CHATS:
            last = shown[-1]
            # Keyset pagination: time and id identify the last chat exactly, even if chats change meanwhile.
            place = {"q": words, "older": f"{last.updated_at!r}~{last.id}"}
            older = urlencode({key: value for key, value in place.items() if value})
        here = None if current_chat is None else current_chat.id
        items = await self.pending.list(self.me.user.id, time.time())
        waiting = frozenset(each.id for each in items if each.kind is PendingKind.WAITING_CHAT)
        return ChatList(shown, words, older, here, waiting)

    async def _build_settings(
        self, chat: Chat | None, requested_agent: str = "", requested_model: str = ""
    ) -> ChatSettings:
        """Return the available agents and models, and the chosen ones."""
        agents, models = await self.roster.list_agents(self.me.user.id), self.chats.models
        person = self.me.user.principal
        choices, by_id = models.choices_for(person), {each.id: each for each in agents}
        agent = (requested_agent if requested_agent in by_id else "") if chat is None else chat.agent or ""
        own = by_id[agent].model if agent in by_id else None
        labels = {each.id: each.label for each in choices}
        default = own or models.default_for(person) or ""
        return ChatSettings(
            chat,
            sorted(agents, key=lambda each: each.name.casefold()),
            choices,
            agent,
            (chat.model or "") if chat is not None else requested_model if requested_model in labels else "",
            labels.get(default, default),
            any(each.sees for each in choices if each.id == default),
        )

    def _choose_console(self, chat: Chat | None, query: Mapping[str, str]) -> ToolConsole | None:
        if "run" not in query and self.chats.models.choices_for(self.me.user.principal):
            return None
        return ToolConsole(None if chat is None else chat.id, query.get("tool", ""), is_later=True)


ChatPagesDep = Annotated[ChatPages, Depends()]


def _limit_turns(events: Sequence[ChatEvent]) -> Sequence[ChatEvent]:
    turn_starts = [at for at, each in enumerate(events) if each.seq == each.turn]
    return events[turn_starts[-_MAX_TURNS] :] if len(turn_starts) > _MAX_TURNS else events


def _parse_list_position(text: str) -> tuple[float, str] | None:
    updated, _, chat_id = text.partition("~")
    try:
        return (float(updated), chat_id) if chat_id.isalnum() and len(chat_id) < 100 else None
    except ValueError:
        return None
