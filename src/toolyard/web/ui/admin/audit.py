"""``/ui/admin/audit``: the audit log in words, with filters by time, action, person, server and outcome."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import Request, Response

from toolyard.agents.chat.title_writer import TITLE_AGENT
from toolyard.types.audit import AuditEntry
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import money
from toolyard.web.ui.components.server_names import ServerNames, ServerNamesReaderDep, find_owners

__all__ = ["router"]

router = Routes()

_ENTRIES_PER_PAGE = 100
_ACTION_WORDS = {
    "sign_in": "Signed in",
    "sign_out": "Signed out",
    "invite.accept": "Accepted an invite",
    "password.change": "Changed the password",
    "tool.call": "Called a tool",
    "tool.call.start": "Started a tool call",
    "model.request": "Asked a model",
    "model.add": "Added a model",
    "model.edit": "Edited a model",
    "model.test": "Tested a model",
    "model.delete": "Deleted a model",
    "proposal.add": "Proposed a server",
    "proposal.withdraw": "Withdrew a proposal",
    "proposal.accept": "Accepted a proposal",
    "proposal.decline": "Declined a proposal",
    "server.add": "Added a server",
    "server.edit": "Edited a server",
    "server.enable": "Enabled a server",
    "server.disable": "Disabled a server",
    "server.delete": "Deleted a server",
    "server.restart": "Restarted a server",
    "server.confirm_issuer": "Confirmed an issuer",
    "server.connect": "Started a sign-in to a server",
    "server.sign_in": "Signed in to a server",
    "server.sign_in_failed": "Failed to sign in to a server",
    "server.sign_out": "Signed out of a server",
    "instance.create": "Created an instance",
    "instance.edit": "Edited an instance",
    "config.approve": "Approved a configuration file",
    "config.deny_tools": "Turned off tools of a configured server",
    "instance.filter": "Selected tools of an instance",
    "instance.connect": "Started a sign-in of an instance",
    "instance.sign_in": "Connected an instance",
    "instance.sign_in_failed": "Failed to connect an instance",
    "instance.enable": "Enabled an instance",
    "instance.disable": "Disabled an instance",
    "instance.delete": "Deleted an instance",
    "lock.accept": "Accepted changed tools",
    "agent.create": "Created an agent",
    "agent.import": "Imported an agent",
    "agent.edit": "Edited an agent",
    "agent.delete": "Deleted an agent",
    "chat.create": "Started a chat",
    "chat.delete": "Deleted a chat",
    "chat.delete_turn": "Deleted a version of a message",
    "approval.answer": "Answered an approval",
    "question.answer": "Answered a question from a server",
    "grant.revoke": "Revoked a standing approval",
    "token.make": "Created an API token",
    "token.delete": "Revoked an API token",
    "user.add": "Added a person",
    "user.edit": "Edited a person",
    "user.enable": "Enabled a person",
    "user.disable": "Disabled a person",
    "user.invite": "Created an invite link",
    "user.delete": "Deleted a person",
    "database.move": "Moved the database",
    "database.rekey": "Changed the secret key of the database",
    "audit.export": "Exported the audit log",
    "audit.lost": "Lost entries of the audit log",
}
_PERIODS = {
    "1h": ("Last hour", 3600),
    "1d": ("Last 24 hours", 86_400),
    "7d": ("Last 7 days", 7 * 86_400),
    "30d": ("Last 30 days", 30 * 86_400),
}
_OUTCOMES = {"ok": "Succeeded", "failed": "Failed or refused"}
_OUTCOME_WORDS = {"ok": "OK", "": "Started", "HttpStatus": "HTTP error", "RpcError": "Protocol error"}
_NAMED_BY_DETAIL = ("name", "slug")
"""Details that name the target, whose id is not shown then."""
_DETAIL_LABELS = {"why": "cause", "yes": "allowed"}
_UNNAMED_TARGETS = ("chat.", "approval.", "grant.", "proposal.withdraw", "question.", "sign_out")
"""Actions whose target is an id that means nothing to people."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry in words. ``id`` is the target's id if another text is shown for it."""

    entry: AuditEntry
    action: str
    who: str
    what: str
    id: str
    notes: Sequence[tuple[str, object]]
    outcome: str

    @property
    def kind(self) -> str:
        """CSS class of the outcome."""
        return {"ok": "good", "": ""}.get(self.entry.outcome, "bad")


@router.get("/ui/admin/audit")
async def show_audit_log(
    request: Request,
    me: deps.AdminUser,
    accounts: deps.AccountsDep,
    audit_log: deps.AuditLogDep,
    server_names: ServerNamesReaderDep,
    when: str = "",
    action: str = "",
    actor: str = "",
    server: str = "",
    outcome: str = "",
    before: str = "",
) -> Response:
    """Show the entries that match the filters, one page at a time."""
    before_id = forms.parse_number(before, 18)
    chosen = {"when": when, "action": action, "actor": actor, "server": server, "outcome": outcome}
    # One entry more than shown tells whether there is another page.
    found = await audit_log.entries(
        before=before_id,
        limit=_ENTRIES_PER_PAGE + 1,
        action=action or None,
        actor=actor or None,
        since=time.time() - _PERIODS[when][1] if when in _PERIODS else None,
        server=server or None,
        succeeded=outcome == "ok" if outcome in _OUTCOMES else None,
    )
    older = None  # URL of the page with older entries.
    if len(found) > _ENTRIES_PER_PAGE:
        found = found[:_ENTRIES_PER_PAGE]
        query = {**chosen, "before": str(found[-1].id)}
        older = f"/ui/admin/audit?{urlencode({key: value for key, value in query.items() if value})}"
    users = await accounts.list_users()
    people = {each.id: each.name for each in users}
    owners = find_owners(each.target for each in found) | {each.actor for each in found}
    names = await server_names.read(owners, people)
    names_by_id = {**names.servers, **names.instances, **people}
    return responses.render_page(
        request,
        "audit.html",
        rows=[_build_row(each, names, names_by_id) for each in found],
        people=people.items(),
        servers=names.servers,
        chosen=chosen,
        actions=_ACTION_WORDS,
        periods={value: label for value, (label, _) in _PERIODS.items()},
        outcomes=_OUTCOMES,
        older=older,
        newest=before_id is None,
    )


def _build_row(entry: AuditEntry, server_names: ServerNames, names: Mapping[str, str]) -> AuditRow:
    details = {key: value for key, value in entry.details.items() if value is not None and value != ""}
    what = names.get(entry.target) or _name_target(entry, server_names)
    # A call has the name that models see; its target says which tool that is.
    if not entry.action.startswith("tool."):
        named = next((str(details.pop(key)) for key in _NAMED_BY_DETAIL if key in details), "")
        what = named or ("" if entry.action.startswith(_UNNAMED_TARGETS) else what)
    return AuditRow(
        entry,
        _ACTION_WORDS.get(entry.action, entry.action),
        entry.actor_name or names.get(entry.actor, entry.actor) or "nobody",
        what,
        entry.target if what != entry.target else "",
        [_describe_detail(key, value, names) for key, value in details.items()],
        _describe_outcome(entry.outcome),
    )


def _describe_detail(key: str, value: object, names: Mapping[str, str]) -> tuple[str, object]:
    """Return a detail of an entry with its label."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    elif key == "cost" and isinstance(value, float):
        value = money(value)
    elif isinstance(value, str):
        value = "titles of chats" if value == TITLE_AGENT else names.get(value, value)
    return _DETAIL_LABELS.get(key, key.replace("_", " ")), value


def _describe_outcome(outcome: str) -> str:
    """Return an outcome in words. That of a failed call is the class name of its error."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", outcome)
    return _OUTCOME_WORDS.get(outcome, words.capitalize())


def _name_target(entry: AuditEntry, names: ServerNames) -> str:
    """Return a tool or an instance by name, any other target as it is."""
    if entry.action.startswith("tool."):
        return names.name_tool(entry.target)
    if entry.target.startswith("@"):
        return names.name_server(entry.target)
    # The id of an instance says nothing to people.
    return "A deleted instance" if entry.action.startswith("instance.") else entry.target
