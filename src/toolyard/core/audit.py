"""Audit entries about tool calls and about changes that users make."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from toolyard.config.settings.table import AuditMode, PeopleMode, Settings
from toolyard.store.errors import StoreError
from toolyard.store.repositories.audit import SqlAuditLog
from toolyard.store.repositories.usage import MODEL_REQUEST_ACTION, TOOL_CALL_ACTION
from toolyard.types.account import LOCAL_PRINCIPAL, RequestUser
from toolyard.types.audit import AuditEntry
from toolyard.types.call import Caller, CallRecord
from toolyard.types.chat import ModelUsage

__all__ = ["AuditRecorder"]

_LOCAL_NAMES = {LOCAL_PRINCIPAL.id: LOCAL_PRINCIPAL.name}
"""Names of people who are not the user of a request: the one at the terminal."""


class AuditRecorder:
    """Writes audit entries. ``before_call`` and ``record_call`` are hooks of the call path."""

    def __init__(self, log: SqlAuditLog, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._log = log
        # The only user would also be the only reader of the log.
        self._is_audited = settings.people_mode is not PeopleMode.NONE
        self._is_batched = settings.audit is AuditMode.BATCHED
        self._clock = clock
        # A context variable, because the call path calls the hooks without the user of the request.
        self._current_user: ContextVar[RequestUser | None] = ContextVar("current_user", default=None)

    @property
    def is_failing(self) -> bool:
        """True if calls are refused because the audit log cannot be written."""
        return self._is_audited and self._log.is_failing

    def set_current_user(self, request_user: RequestUser) -> None:
        """Attribute the further tool calls of the running task to this user."""
        self._current_user.set(request_user)

    async def before_call(self, tool: str, name: str, caller: Caller) -> None:
        """Record the start of a call. Raises StoreError to refuse the call if the log cannot be written."""
        if not self._is_audited:
            return
        # Batched entries are written later, so a call is only refused while the log is failing.
        # Otherwise the start of the call must be stored before the call is made.
        if self._is_batched:
            self._log.check()
            return
        agent = caller.agent.id if caller.agent is not None else None
        details = {"name": name, "agent": agent}
        await self._log.write_before_action(
            self._create_call_entry("tool.call.start", caller.principal.id, tool, "", details)
        )

    def record_call(self, record: CallRecord) -> None:
        """Record the outcome of a call."""
        details = {"name": record.name, "agent": record.agent, "seconds": round(record.seconds, 3)}
        self._log.record(
            self._create_call_entry(TOOL_CALL_ACTION, record.principal, record.tool, record.outcome, details)
        )

    def record_model_request(self, owner: str, agent: str | None, model: str, usage: ModelUsage) -> None:
        """Record the tokens and the cost of a model request in a chat."""
        details = {
            "agent": agent,
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "cost": usage.cost,
        }
        self._log.record(self._create_call_entry(MODEL_REQUEST_ACTION, owner, model, "ok", details))

    def _create_call_entry(
        self, action: str, actor: str, target: str, outcome: str, details: dict[str, Any]
    ) -> AuditEntry:
        request_user = self._current_user.get()
        return AuditEntry(
            at=self._clock(),
            action=action,
            actor=actor,
            actor_name=request_user.user.name if request_user is not None else _LOCAL_NAMES.get(actor, ""),
            target=target,
            outcome=outcome,
            address=request_user.address if request_user is not None else "",
            details=details,
        )

    async def record_change(
        self, request_user: RequestUser, action: str, target: str, **details: object
    ) -> None:
        """Write an entry about a change that a user made.

        If the database is unavailable, the entry is queued: the change has happened, so its request must not
        fail because of the log.
        """
        entry = AuditEntry(
            at=self._clock(),
            action=action,
            actor=request_user.user.id,
            actor_name=request_user.user.name,
            target=target,
            address=request_user.address,
            details=details,
        )
        try:
            await self._log.write(entry)
        except StoreError:
            self._log.record(entry)
