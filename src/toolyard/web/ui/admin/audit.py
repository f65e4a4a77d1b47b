"""``/ui/admin/audit``: the audit log, with filters by action and person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.types.account import User
from toolyard.types.audit import AuditEntry
from toolyard.web.access.dependencies import RequestUser, require_admin
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import AccountsDep, AuditLogDep
from toolyard.web.ui.components.render import render_page

__all__ = ["router"]

router = Routes()

_ENTRIES_PER_PAGE = 100
_FILTERABLE_ACTIONS = (
    "sign_in",
    "sign_out",
    "invite.accept",
    "password.change",
    "tool.call",
    "tool.call.start",
    "server.add",
    "server.edit",
    "server.enable",
    "server.disable",
    "server.delete",
    "server.restart",
    "server.confirm_issuer",
    "instance.create",
    "instance.edit",
    "instance.filter",
    "instance.connect",
    "instance.enable",
    "instance.disable",
    "instance.delete",
    "chat.create",
    "chat.delete",
    "approval.answer",
    "grant.revoke",
    "token.make",
    "token.delete",
    "user.add",
    "user.edit",
    "user.invite",
    "user.delete",
)


@dataclass(frozen=True, slots=True)
class AuditLogPage:
    """Content of the audit log page, newest entries first."""

    entries: Sequence[AuditEntry]
    users: Sequence[User]
    action: str
    actor: str
    older: str | None
    """URL of the page with older entries; None on the last page."""
    newest: bool

    actions = _FILTERABLE_ACTIONS


@router.get("/ui/admin/audit")
async def show_audit_log(
    request: Request,
    me: Annotated[RequestUser, Depends(require_admin)],
    accounts: AccountsDep,
    audit_log: AuditLogDep,
    action: str = "",
    actor: str = "",
    before: str = "",
) -> Response:
    """Show the entries that match the filters, one page at a time."""
    # At most 18 digits, because larger numbers do not fit the database's integers.
    before_id = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None
    # One entry more than shown tells whether there is another page.
    found = await audit_log.entries(
        before=before_id, limit=_ENTRIES_PER_PAGE + 1, action=action or None, actor=actor or None
    )
    older = None
    if len(found) > _ENTRIES_PER_PAGE:
        found = found[:_ENTRIES_PER_PAGE]
        query = {"action": action, "actor": actor, "before": str(found[-1].id)}
        older = f"/ui/admin/audit?{urlencode({key: value for key, value in query.items() if value})}"
    users = await accounts.list_users()
    page = AuditLogPage(found, users, action, actor, older, before_id is None)
    return render_page(request, "audit.html", page=page)
