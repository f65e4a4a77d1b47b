"""Tools that a person can turn off to stay within the token budget: those that nobody used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolyard.catalog.token_costs import (
    SavingKind,
    SavingProposal,
    ToolCost,
    estimate_definition_tokens,
    propose_savings,
)
from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.config.server_entry_edits import (
    build_denial,
    plan_server_edits,
    read_entries,
    write_server_edits,
)
from toolyard.config.settings.table import Settings
from toolyard.core.audit import AuditRecorder
from toolyard.core.caller_cache import CallerCache
from toolyard.core.current_config import CurrentConfig
from toolyard.core.instance_sync import InstanceSync
from toolyard.errors import ToolyardError
from toolyard.registry import Registry
from toolyard.store.repositories.usage import SqlUsage
from toolyard.types.account import RequestUser
from toolyard.types.audit import ToolUsage
from toolyard.types.registry import InstanceDraft
from toolyard.types.tool import Definition

__all__ = ["USAGE_SECONDS", "ToolSavings"]

USAGE_SECONDS = 4 * 7 * 86_400.0
"""Time in which a tool must have been called to count as used."""


@dataclass(frozen=True, slots=True)
class ToolSavings:
    """Proposes which tools to turn off, and does it: in a person's own instances, and for admins in the
    configuration file. For servers of that file, the calls of everybody count.
    """

    _settings: Settings
    _config: CurrentConfig
    _callers: CallerCache
    _instances: InstanceSync
    _tool_directory: ToolDirectory
    _call_path: CallPath
    _registry: Registry
    _usage: SqlUsage
    _audit: AuditRecorder

    async def propose(self, me: RequestUser) -> SavingProposal | None:
        """Return the unused tools to turn off, by server; None within the budget, or if there are none."""
        since = time.time() - USAGE_SECONDS
        own = await self._usage.count_calls(since, person=me.user.id)
        if own.since is None:
            return None
        everybody = await self._usage.count_calls(since)
        sources = {instance.core_id: own for instance, _ in await self._instances.sync(me.principal)}
        if me.is_admin and self._config.configuration.file is not None:
            entries = await asyncio.to_thread(read_entries, Path(self._config.configuration.file))
            sources |= dict.fromkeys(entries, everybody)
        costs = [_build_cost(each, sources.get(each.server_id)) for each in self._list_tools(me)]
        found = propose_savings(costs, 0, self._settings.meta_threshold)
        return next((each for each in found if each.kind is SavingKind.TOOLS), None)

    async def apply(self, me: RequestUser, tools: Mapping[str, Sequence[str]]) -> None:
        """Turn off these tools. Raises ToolyardError or OSError."""
        file = self._config.configuration.file
        instances = {each.core_id: each for each, _ in await self._instances.sync(me.principal)}
        in_file = {id: names for id, names in tools.items() if id not in instances}
        if in_file and me.is_admin and file is not None:
            await asyncio.to_thread(self._deny_in_file, Path(file), in_file)
            for server_id, names in in_file.items():
                await self._audit.record_change(me, "config.deny_tools", server_id, tools=list(names)[:100])
        known = self._list_tools(me)
        for server_id in tools.keys() & instances.keys():
            instance, denied = instances[server_id], set(tools[server_id])
            kept = [each.name for each in known if each.server_id == server_id and each.name not in denied]
            draft = InstanceDraft(tool_filter=tuple(kept))
            await self._registry.edit_instance(me.user.id, instance.id, draft)
            await self._audit.record_change(me, "instance.filter", instance.id, slug=instance.slug)
        await self._instances.sync(me.principal)

    def _list_tools(self, me: RequestUser) -> list[Definition]:
        caller = self._callers.get(me)
        listing = self._tool_directory.known_listing(caller.principal)
        return list(self._call_path.visible_tools(listing, caller).values())

    def _deny_in_file(self, file: Path, tools: Mapping[str, Sequence[str]]) -> None:
        entries = read_entries(file)
        edits = [build_denial(entries[id], names) for id, names in tools.items() if id in entries]
        _, needs_approval = write_server_edits(plan_server_edits(file, edits), self._config.data_dir)
        if needs_approval:
            raise ToolyardError(
                "the file was changed, and needs your approval before it is used",
                hint=f"run `toolyard approve {file}`",
            )


def _build_cost(definition: Definition, usage: ToolUsage | None) -> ToolCost:
    # A tool of a server that the person cannot change is not proposed.
    calls = 1 if usage is None else usage.calls.get(definition.id, 0)
    return ToolCost(definition.server_id, definition.name, estimate_definition_tokens(definition), calls)
