"""Tools of a user, found and called by their exposed names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.core.audit import AuditRecorder
from toolyard.core.callers import CallerCache
from toolyard.core.instances import InstanceSync
from toolyard.types.account import RequestUser
from toolyard.types.call import Caller, ToolCall
from toolyard.types.tool import Definition, Result

__all__ = ["UserTools"]


class UserTools:
    """Finds and calls single tools."""

    def __init__(
        self,
        callers: CallerCache,
        instances: InstanceSync,
        tool_directory: ToolDirectory,
        call_path: CallPath,
        audit: AuditRecorder,
    ) -> None:
        self._callers = callers
        self._instances = instances
        self._tool_directory = tool_directory
        self._call_path = call_path
        self._audit = audit

    async def find(self, caller: Caller, name: str) -> Definition:
        """Return one tool visible to the caller, by its exposed name, listing as few servers as possible.

        Raises ToolRefused, or the ServerError of a server that may have the tool but could not be listed.
        """
        calls, directory = self._call_path, self._tool_directory
        if await directory.locate_tool(name, caller.principal) is None:
            # The tool may belong to a server that could not be listed. Report its failure, unless the policy
            # would hide the tool from this caller anyway.
            for server_id, failure in directory.known_listing(caller.principal).failures.items():
                if calls.can_see_unknown_tool(server_id, name, caller):
                    calls.redact_error(failure)
                    raise failure
        visible_tools = calls.visible_tools(directory.known_listing(caller.principal), caller)
        if name not in visible_tools:
            raise calls.refusal(name, caller)
        return visible_tools[name]

    async def call(
        self,
        request_user: RequestUser,
        name: str,
        arguments: Mapping[str, Any],
        *,
        agent: str | None = None,
        bundles: Iterable[str] = (),
    ) -> Result:
        """Call a tool for a user. Raises ToolRefused or a ServerError."""
        caller = await self._callers.find(request_user, agent, bundles)
        await self._instances.sync(request_user.principal)
        self._audit.set_current_user(request_user)
        return await self._call_path.call(ToolCall(name, arguments), caller)
