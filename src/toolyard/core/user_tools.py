"""Calls of a user, by the exposed names of tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolyard.clients.call_path import CallPath
from toolyard.core.audit import AuditRecorder
from toolyard.core.callers import CallerCache
from toolyard.core.instances import InstanceSync
from toolyard.types.account import RequestUser
from toolyard.types.call import ToolCall
from toolyard.types.tool import Result

__all__ = ["UserTools"]


class UserTools:
    """Calls single tools."""

    def __init__(
        self,
        callers: CallerCache,
        instances: InstanceSync,
        call_path: CallPath,
        audit: AuditRecorder,
    ) -> None:
        self._callers = callers
        self._instances = instances
        self._call_path = call_path
        self._audit = audit

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
