"""The one banner of a chat's page about servers that need a new sign-in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from toolyard.clients import ConnectionManager
from toolyard.clients.call_path import CallPath
from toolyard.core.agents import AgentRoster
from toolyard.core.caller_cache import CallerCache
from toolyard.core.current_config import CurrentConfig
from toolyard.core.instance_sync import InstanceSync
from toolyard.errors import ToolyardError
from toolyard.types.account import RequestUser
from toolyard.types.call import Caller, Surface
from toolyard.types.chat import Chat
from toolyard.types.registry import AuthKind, InstanceState
from toolyard.types.server import State
from toolyard.web.servers.config_sign_ins import ConfigServerSignIns
from toolyard.web.ui.components import responses

__all__ = ["ReconnectBanner"]


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
