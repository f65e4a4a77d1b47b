"""The chain of the design, prepared for one caller."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolyard.policy.rules.agent import agent_rule
from toolyard.policy.rules.bundles import bundles_rule
from toolyard.policy.rules.definition import DefinitionRule
from toolyard.policy.rules.native_tools import native_rule
from toolyard.policy.rules.selected_tools import choice_rule, instance_rule
from toolyard.policy.rules.server_lists import server_rule
from toolyard.policy.rules.server_state import state_rule
from toolyard.policy.rules.token_scope import token_rule
from toolyard.policy.rules.trust import trust_rule
from toolyard.policy.rules.write_guard import write_rule
from toolyard.policy.server_policy import ServerPolicy
from toolyard.types.account import TokenScope
from toolyard.types.agent import Agent
from toolyard.types.decision import Surface, WriteTools
from toolyard.types.server import NATIVE_SERVER_ID, Bundle, Server
from toolyard.types.status import State

__all__ = ["Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What one caller brings, whatever the server: ask ``gate`` for each server's part of it."""

    surface: Surface
    write_tools: WriteTools
    bundles: tuple[Bundle, ...]
    agent: Agent | None
    choice: frozenset[str] | None
    scope: TokenScope | None = None
    chat: bool = False

    @classmethod
    def prepare(
        cls,
        surface: Surface,
        *,
        write_tools: WriteTools = WriteTools.REJECT,
        bundles: Iterable[Bundle] = (),
        agent: Agent | None = None,
        choice: Iterable[str] | None = None,
        scope: TokenScope | None = None,
        chat: bool = False,
    ) -> Policy:
        """Prepare the chain for a caller.

        ``bundles`` are the selected ones; none selected leaves servers as they are. ``choice`` holds the
        canonical ids that were chosen in the chat; None where nothing was chosen. ``scope`` is that of the
        API token that the caller came with; None where it was none. ``chat``: the caller is part of one.
        """
        chosen = None if choice is None else frozenset(choice)
        return cls(surface, write_tools, tuple(bundles), agent, chosen, scope, chat)

    def compile_server_policy(
        self, server: Server, state: State, *, instance_filter: Iterable[str] | None = None
    ) -> ServerPolicy:
        """The chain for one server's tools, in the order of the design.

        Approval, rate and size limits are met at the call and join the decision there, by ``Decision.then``.
        """
        own = tuple(each for each in self.bundles if each.server_id == server.id)
        return ServerPolicy.from_rules(
            (
                state_rule(server, state),
                DefinitionRule(),
                write_rule(server, self.write_tools),
                trust_rule(server, self.surface, own),
                server_rule(server),
                native_rule(self.chat)
                if server.id == NATIVE_SERVER_ID
                else bundles_rule(server.id, self.bundles, self.surface),
                agent_rule(self.agent, self.surface),
                instance_rule(instance_filter),
                choice_rule(server.id, self.choice),
                *(() if self.scope is None else (token_rule(self.scope, server, self.agent),)),
            )
        )
