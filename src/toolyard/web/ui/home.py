"""``/ui/``: servers and instances by state, and suggested next steps."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request, Response
from starlette.responses import RedirectResponse

from toolyard.config.settings.table import PeopleMode
from toolyard.core.local_client_marker import has_local_client
from toolyard.registry.proposals import Proposals
from toolyard.store.repositories.approvals import SqlPendingItems
from toolyard.types.account import RequestUser
from toolyard.types.approval import PendingKind
from toolyard.types.registry import Instance, RegistryServer
from toolyard.types.server import Server, StdioSpec
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.status import ServerRecord
from toolyard.web.ui.components import responses
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.instances.overview import InstanceRow, InstanceRowsDep

__all__ = ["router"]

router = Routes()

_EXAMPLE_PATTERN = re.compile(r"toolyard[./]cli[./](demo|playground)_server(\.py)?$")
_MAX_HOME_ENTRIES = 5
_URGENCY_BY_STATE = {"needs_reauth": 0, "failed": 1, "pending": 2, "ready": 3, "disabled": 4}
_GROUPS_WITHOUT_ZERO = ("starting", "pending")
"""Keys of groups that are shown only if there is a server in them."""
_STATE_GROUPS = (
    ("ready", "Ready", ("ready",)),
    ("attention", "Need attention", ("failed", "needs_auth", "needs_reauth")),
    ("starting", "Starting", ("connecting",)),
    ("pending", "Not connected", ("pending",)),
    ("idle", "Idle", ("idle", "closed")),
    ("disabled", "Disabled", ("disabled",)),
)
_PENDING_STEPS = (
    (PendingKind.WAITING_CHAT, "chat", "attention", "/ui/chat/{}", "Open"),
    (PendingKind.APPROVAL, "call", "approval", "/ui/approvals", "Review"),
    (PendingKind.QUESTION, "question", "answer", "/ui/approvals", "Answer"),
    (PendingKind.PROPOSAL, "proposal", "decision", "/ui/admin/proposals", "Review"),
)
"""Kind, what there is, what it needs from the person, page, and label of the link to it."""
_INVITE_TEXTS = {
    PeopleMode.PASSWORD: ("Each person has their own connections, chats and approvals.", "Invite"),
    PeopleMode.PROXY: ("Send the address of this page to people whom your proxy lets in.", "Show people"),
    PeopleMode.OIDC: (
        "Send the address of this page to people who can sign in at your identity provider.",
        "Show people",
    ),
}
"""Text of the step, and label of its link."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """A suggested action, with the page on which it is done."""

    title: str
    text: str
    href: str
    verb: str
    done: bool = False
    """True for a first step that the person has done."""


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """Finds out which steps a person has done."""

    me: deps.CurrentUser
    config: deps.ConfigDep
    settings: deps.SettingsDep
    registry: deps.RegistryDep
    people: deps.PeopleDep
    accounts: deps.AccountsDep
    usage: deps.UsageDep
    chats: deps.ChatsDep

    async def list(self, *, has_instances: bool) -> list[NextStep]:
        """Return the steps of this person; none if all are done, now or before, or if they hid them."""
        if self.me.user.first_steps_hidden_at is not None:
            return []
        steps = await self._build_steps(has_instances=has_instances)
        if all(step.done for step in steps):
            await self.people.set_first_steps_hidden(self.me.user, hidden=True)
            return []
        return steps

    async def show(self) -> bool:
        """Show hidden steps again. Return False if there is nothing to show, because all are done."""
        has_instances = bool(await self.registry.list_instances(self.me.user.id))
        if all(step.done for step in await self._build_steps(has_instances=has_instances)):
            return False
        await self.people.set_first_steps_hidden(self.me.user, hidden=False)
        return True

    @property
    def _has_accounts(self) -> bool:
        return self.settings.people_mode is not PeopleMode.NONE

    async def _build_steps(self, *, has_instances: bool) -> list[NextStep]:
        has_registry_servers = has_instances or bool(await self.registry.list_servers())
        has_file_servers = bool(self.config.configuration.servers)
        try_tool = NextStep(
            "Try a tool",
            "Find a tool, fill in its form, and see the result.",
            "/ui/chat?run=",
            "Run a tool",
            await self.usage.has_successful_calls(self.me.user.id),
        )
        steps = [try_tool, self._build_editor_step()]
        if self.me.is_admin:
            add_server = NextStep(
                "Add a server",
                "Choose one from the catalogue, paste a URL, or import those of your other clients with the"
                " command `toolyard import`.",
                "/ui/catalog",
                "Open catalogue",
                has_registry_servers or _has_own_server(self.config.configuration.servers.values()),
            )
            steps[1:1] = [add_server, self._build_model_step()]
            if not has_registry_servers and not has_file_servers:
                # There is no tool to try before.
                steps[:2] = [add_server, try_tool]
            if self._has_accounts:
                steps.append(await self._build_invite_step())
        elif has_registry_servers:
            text = "Choose a server and sign in to use its tools."
            connect = NextStep("Connect to a server", text, "/ui/mcp/new", "Choose a server", has_instances)
            steps.insert(1 if has_file_servers else 0, connect)
        return steps

    def _build_editor_step(self) -> NextStep:
        is_done = self.me.user.client_seen_at is not None or (
            not self._has_accounts and has_local_client(self.config.data_dir)
        )
        text = "One entry gives Claude Code, Cursor, VS Code and other clients all your servers."
        return NextStep("Connect your editor", text, "/ui/connect", "Show entry", is_done)

    def _build_model_step(self) -> NextStep:
        text = "Chats use it. Any provider, OpenAI-compatible endpoint or local model will do."
        is_done = bool(self.chats.models.choices_for(self.me.user.principal))
        return NextStep("Choose a model", text, "/ui/admin/models/new", "Add a model", is_done)

    async def _build_invite_step(self) -> NextStep:
        text, verb = _INVITE_TEXTS[self.settings.people_mode]
        is_done = await self.accounts.has_several_users()
        return NextStep("Invite people", text, "/ui/admin/people", verb, is_done)


FirstStepsDep = Annotated[FirstSteps, Depends()]


def _has_own_server(servers: Iterable[Server]) -> bool:
    """Return whether there is a server other than the examples of ``make run`` and ``toolyard demo``."""
    return any(
        not (isinstance(each.transport, StdioSpec) and any(map(_EXAMPLE_PATTERN.search, each.transport.args)))
        for each in servers
    )


@router.get("/")
@router.get("/ui")
async def redirect_to_home() -> Response:
    """Redirect ``/`` and ``/ui`` to the home page."""
    return RedirectResponse("/ui/", 303)


@router.get("/ui/")
async def show_home(
    request: Request,
    me: deps.CurrentUser,
    callers: deps.CallersDep,
    instance_sync: deps.InstanceSyncDep,
    config: deps.ConfigDep,
    registry: deps.RegistryDep,
    pending: deps.PendingItemsDep,
    instance_rows: InstanceRowsDep,
    chats: deps.ChatsDep,
    server_records: deps.ServerRecordsDep,
    tool_acceptance: deps.ToolAcceptanceDep,
    first_steps: FirstStepsDep,
    proposals: deps.ProposalsDep,
) -> Response:
    """Show the home page of the signed-in person."""
    caller = callers.get(me)
    instances = await instance_sync.sync(me.principal)
    files = [
        server_records.build_config_record(caller, each) for each in config.configuration.servers.values()
    ]
    states = [each.state for each in files]
    states += [_get_instance_state(each) for each in instances]
    urgent = sorted(instances, key=lambda each: _URGENCY_BY_STATE.get(_get_instance_state(each), 9))[
        :_MAX_HOME_ENTRIES
    ]
    enabled_files = [each for each in files if each.state != "disabled"]
    # Only admins have another page with the servers of files.
    shown_files = enabled_files[:_MAX_HOME_ENTRIES] if me.is_admin else enabled_files
    changed = await tool_acceptance.count_quarantined_tools(me, instances)
    # Only the instances that are shown get a row. All are counted.
    rows = [instance_rows.build(*each, changed.get(each[0].core_id, 0)) for each in urgent]
    records = [*files, *(server_records.build_instance_record(caller, *each) for each in instances)]
    first = await first_steps.list(has_instances=bool(instances))
    shown_first = {each.href for each in first}
    # The number is only needed for the step that suggests the first instance.
    registered = 0 if instances else len(await registry.list_servers())
    return responses.render_page(
        request,
        "home.html",
        groups=[
            (key, text, number)
            for key, text, group in _STATE_GROUPS
            if (number := sum(state in group for state in states)) or key not in _GROUPS_WITHOUT_ZERO
        ],
        total=len(states),
        instances=rows,
        more_instances=len(instances) - len(rows),
        files=shown_files,
        more_files=len(enabled_files) - len(shown_files),
        # Steps of a new installation; none once they are done or hidden.
        first_steps=first,
        steps=[
            *await _build_pending_steps(pending, me),
            *await _build_proposal_steps(proposals, me),
            *_build_review_steps(me, changed, files, instances),
            *(
                step
                for step in _build_next_steps(me, rows, files, registered, bool(instances))
                if step.href not in shown_first
            ),
        ],
        tools=sum(each.tool_count or 0 for each in records),
        tokens=sum(each.token_cost or 0 for each in records),
        # Number of tools in quarantine, by id of a configured server or core id of an instance.
        changed=changed,
        can_chat=bool(chats.models.choices_for(me.user.principal)),
    )


def _get_instance_state(pair: tuple[Instance, RegistryServer]) -> str:
    instance, server = pair
    return instance.state.value if instance.enabled and server.enabled else "disabled"


async def _build_pending_steps(pending: SqlPendingItems, me: RequestUser) -> list[NextStep]:
    """Return a step for each kind of pending item. The badges of the navigation count the same items."""
    items = await pending.list(me.user.id, time.time(), with_proposals=me.is_admin)
    steps: list[NextStep] = []
    for kind, noun, need, href, verb in _PENDING_STEPS:
        if found := [each for each in items if each.kind is kind]:
            title = f"{count(len(found), noun)} {'needs' if len(found) == 1 else 'need'} your {need}"
            text = f"“{found[0].title or 'New chat'}”"
            steps.append(NextStep(title, text, href.format(found[0].id), verb))
    return steps


async def _build_proposal_steps(proposals: Proposals, me: RequestUser) -> list[NextStep]:
    """Return a step for each decision about the person's proposals that they have not seen."""
    return [
        NextStep(
            f"“{each.name}” was {each.state}", each.answer or "Your proposal", "/ui/proposals", "Details"
        )
        for each in await proposals.list_unseen(me.user.id)
    ]


def _build_review_steps(
    me: RequestUser,
    changed: Mapping[str, int],
    files: Sequence[ServerRecord],
    instances: Sequence[tuple[Instance, RegistryServer]],
) -> list[NextStep]:
    """Return a step for each server with tools in quarantine."""
    places = {
        instance.core_id: (instance.name, f"/ui/mcp/{instance.id}/changes") for instance, _ in instances
    }
    for each in files:
        place = (
            f"admin/mcp/files/{quote(each.id, safe='')}/changes"
            if me.is_admin
            else f"servers/{quote(each.id, safe='')}"
        )
        places[each.id] = (each.label, f"/ui/{place}")
    return [
        NextStep(
            f"{count(number, 'tool')} of “{name}” changed",
            f"{'It is' if number == 1 else 'They are'} blocked until the change is accepted",
            href,
            "Review",
        )
        for id_, number in changed.items()
        for name, href in ([places[id_]] if id_ in places else [])
    ]


def _build_next_steps(
    me: RequestUser, rows: list[InstanceRow], files: list[ServerRecord], registered: int, any_instances: bool
) -> list[NextStep]:
    """Return next steps, the most useful first."""
    steps = [
        _build_repair_step(row) for row in rows if row.record.state in ("needs_reauth", "failed", "pending")
    ]
    if me.is_admin:
        steps += [
            NextStep(
                f"“{each.label}” {'needs sign-in' if each.state == 'needs_auth' else 'failed'}",
                each.cause or "",
                f"/ui/admin/mcp/files/{quote(each.id, safe='')}",
                "Details",
            )
            for each in files
            if each.state in ("failed", "needs_auth")
        ]
    else:
        steps += [
            NextStep(
                f"“{each.label}” needs sign-in",
                each.cause or "",
                f"/ui/servers/{quote(each.id, safe='')}",
                "Details",
            )
            for each in files
            if each.state == "needs_auth" and not each.shared
        ]
    if not any_instances and registered:
        text = f"The registry has {count(registered, 'server')}. An instance is your connection to one."
        steps.append(NextStep("Connect to a server", text, "/ui/mcp/new", "Choose a server"))
    elif not any_instances and me.is_admin:
        text = "Choose one from the catalogue or paste its URL; then you and others can connect to it."
        steps.append(NextStep("Add your first server", text, "/ui/catalog", "Open catalogue"))
    return steps[:_MAX_HOME_ENTRIES]


def _build_repair_step(row: InstanceRow) -> NextStep:
    at = f"/ui/mcp/{row.id}"
    if row.record.state == "failed":
        return NextStep(f"“{row.record.label}” failed", row.record.cause or "", at, "Details")
    what = "Connect" if row.record.state == "pending" else "Reconnect"
    return NextStep(f"{what} “{row.record.label}”", row.record.cause or "", at, row.sign_in or "Enter key")


# First steps of a person. Each is done when the data says so, not when it was clicked.


@router.post("/ui/first-steps/hide")
async def hide_first_steps(me: deps.BrowserUser, people: deps.PeopleDep) -> Response:
    """Stop showing the first steps to this person."""
    await people.set_first_steps_hidden(me.user, hidden=True)
    return responses.redirect_to("/ui/")


@router.post("/ui/first-steps/show")
async def show_first_steps(me: deps.BrowserUser, first_steps: FirstStepsDep) -> Response:
    """Show the first steps to this person again, unless all are done."""
    is_shown = await first_steps.show()
    return responses.redirect_to("/ui/", None if is_shown else "You have completed all first steps.")
