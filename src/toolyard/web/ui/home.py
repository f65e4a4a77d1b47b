"""``/ui/``: servers and instances by state, and suggested next steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from fastapi import Request, Response
from starlette.responses import RedirectResponse

from toolyard.registry.proposals import Proposals
from toolyard.store.repositories.approvals import SqlApprovalStore
from toolyard.types.account import RequestUser
from toolyard.types.registry import Instance, RegistryServer
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.status import ServerRecord
from toolyard.web.ui.components import responses
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.first_steps import FirstStepsDep
from toolyard.web.ui.instances.overview import InstanceRow, InstanceRowsDep

__all__ = ["router"]

router = Routes()

_MAX_HOME_ENTRIES = 5
_URGENCY_BY_STATE = {"needs_reauth": 0, "failed": 1, "pending": 2, "ready": 3, "disabled": 4}
_STATE_GROUPS = (
    ("ready", "Ready", ("ready",)),
    ("attention", "Need attention", ("failed", "needs_auth", "needs_reauth")),
    ("starting", "Starting", ("connecting",)),
    ("resting", "Not connected", ("idle", "pending", "closed")),
    ("disabled", "Disabled", ("disabled",)),
)


@dataclass(frozen=True, slots=True)
class NextStep:
    """A suggested action."""

    title: str
    text: str
    href: str
    verb: str


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
    approvals: deps.ApprovalsDep,
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
    changed = await tool_acceptance.count_quarantined_tools(me, instances)
    # Only the instances that are shown get a row. All are counted.
    rows = [instance_rows.build(*each, changed.get(each[0].core_id, 0)) for each in urgent]
    records = [*files, *(server_records.build_instance_record(caller, *each) for each in instances)]
    first = await first_steps.list(me, has_instances=bool(instances))
    shown_first = {each.href for each in first}
    # The number is only needed for the step that suggests the first instance.
    registered = 0 if instances else len(await registry.list_servers())
    return responses.render_page(
        request,
        "home.html",
        groups=[(key, text, sum(state in group for state in states)) for key, text, group in _STATE_GROUPS],
        total=len(states),
        instances=rows,
        more_instances=len(instances) - len(rows),
        files=[each for each in files if each.state != "disabled"][:_MAX_HOME_ENTRIES],
        # Steps of a new installation; none once they are done or hidden.
        first_steps=first,
        steps=[
            *await _build_approval_steps(approvals, me),
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


async def _build_approval_steps(approvals: SqlApprovalStore, me: RequestUser) -> list[NextStep]:
    """Return one step if calls need approval."""
    waiting = await approvals.list_pending(me.user.id)
    if not waiting:
        return []
    title = f"{count(len(waiting), 'call')} {'needs' if len(waiting) == 1 else 'need'} your approval"
    return [NextStep(title, f"“{waiting[0].name}”: {waiting[0].reason}", "/ui/approvals", "Review")]


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
    text = "They are blocked until the change is accepted"
    return [
        NextStep(f"{count(number, 'tool')} of “{name}” changed", text, href, "Review")
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
            _build_sign_in_step(each) for each in files if each.state == "needs_auth" and not each.shared
        ]
    if not any_instances and registered:
        text = f"The registry has {count(registered, 'server')}. An instance is your connection to one."
        steps.append(NextStep("Connect to a server", text, "/ui/mcp/new", "Choose a server"))
    elif not any_instances and me.is_admin:
        text = "Choose one of the catalogue or paste its URL; then you and others can connect to it."
        steps.append(NextStep("Add your first server", text, "/ui/catalog", "Open catalogue"))
    return steps[:_MAX_HOME_ENTRIES]


def _build_sign_in_step(record: ServerRecord) -> NextStep:
    at = f"/ui/servers/{quote(record.id, safe='')}"
    return NextStep(f"“{record.label}” needs sign-in", record.cause or "", at, "Details")


def _build_repair_step(row: InstanceRow) -> NextStep:
    at = f"/ui/mcp/{row.id}"
    if row.record.state == "failed":
        return NextStep(f"“{row.record.label}” failed", row.record.cause or "", at, "Details")
    what = "Connect" if row.record.state == "pending" else "Reconnect"
    return NextStep(f"{what} “{row.record.label}”", row.record.cause or "", at, row.sign_in or "Enter key")
