"""``/ui/agents``: agents, their instructions and their tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import Request, Response

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.models.errors import NoSuchModel
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.errors import AgentsError, Problem
from toolyard.registry.errors import NotFound
from toolyard.types.account import RequestUser
from toolyard.types.agent import StoredAgent
from toolyard.web import service_dependencies as deps
from toolyard.web.agent_tools import AgentDirectory, AgentEntry, AgentTool, AgentTools
from toolyard.web.routes import Routes
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import one_line
from toolyard.web.ui.components.forms import (
    FORM_ERRORS,
    ConfirmPage,
    field_errors,
    read_submitted_form,
    render_confirm_page,
)
from toolyard.web.ui.components.render import is_fragment_request, render_large_page, render_page

__all__ = ["AgentPage", "can_share", "router"]

router = Routes()


@dataclass(frozen=True, slots=True)
class AgentsPage:
    """Content of the list of agents. ``problems`` of the file and its path are for admins only."""

    entries: Sequence[AgentEntry]
    broken: Mapping[str, Sequence[Problem]]
    """Problems of agents that cannot be used, by agent id."""
    problems: Sequence[Problem]
    file: str | None
    file_exists: bool


@dataclass(frozen=True, slots=True)
class AgentToolGroup:
    """Tools of one server: those available to the agent, and those hidden from it."""

    server: str
    label: str
    native: bool
    seen: Sequence[AgentTool]
    hidden: Sequence[AgentTool]


@dataclass(frozen=True, slots=True)
class AgentPage:
    """Content of an agent's page. ``tools`` is None if they are loaded separately."""

    entry: AgentEntry
    problems: Sequence[Problem] = ()
    """Reasons why it cannot be used."""
    warnings: Sequence[Problem] = ()
    """Unknown tools of an agent that can be used, and a model that is not available."""
    place: str | None = None
    tools: AgentTools | None = None
    heading: str = "Tools"

    @property
    def groups(self) -> list[AgentToolGroup]:
        """The tools, grouped by server."""
        return _group_agent_tools(() if self.tools is None else self.tools.tools)

    @property
    def counts(self) -> tuple[int, int]:
        """Number of tools available to the agent, and of all tools."""
        tools = () if self.tools is None else self.tools.tools
        return sum(each.through is not None for each in tools), len(tools)

    @property
    def tokens(self) -> int:
        """Estimated tokens of the definitions that the agent's model reads directly."""
        tools = () if self.tools is None else self.tools.tools
        return sum(each.tokens for each in tools if each.through == "direct")


def _group_agent_tools(tools: Sequence[AgentTool]) -> list[AgentToolGroup]:
    """Group tools by server. Groups with available tools come first, then by label, built-in tools last."""
    by_server: dict[str, list[AgentTool]] = {}
    for each in tools:
        by_server.setdefault(each.server, []).append(each)
    groups = [
        AgentToolGroup(
            server,
            group[0].server_label,
            group[0].native,
            [each for each in group if each.through is not None],
            [each for each in group if each.through is None],
        )
        for server, group in by_server.items()
    ]
    return sorted(groups, key=lambda group: (not group.seen, group.native, group.label.lower(), group.server))


@dataclass(frozen=True, slots=True)
class ImportPage:
    """Content of the form that imports agents."""

    can_share: bool
    text: str = ""
    shared: bool = False
    errors: Mapping[str, str] = field(default_factory=dict[str, str])

    labels = {"text": "Text", "name": "Name"}  # noqa: RUF012 - never changed


@router.get("/ui/agents")
async def show_agents(
    request: Request, me: deps.CurrentUser, config: deps.ConfigDep, agent_directory: deps.AgentDirectoryDep
) -> Response:
    """Show all agents, and to admins the problems of their file."""
    entries = await agent_directory.list_entries(me)
    page = AgentsPage(
        entries,
        {each.ref: found for each in entries if (found := agent_directory.find_bundle_problems(each.agent))},
        config.loaded_agents.problems if me.is_admin else (),
        str(config.loaded_agents.path) if me.is_admin else None,
        config.loaded_agents.path.is_file(),
    )
    return render_page(request, "agents.html", page=page)


# No agent has an id with an underscore, so that these paths are not those of agents.


@router.get("/ui/agents/_import")
async def show_import_form(request: Request, me: deps.BrowserUser, settings: deps.SettingsDep) -> Response:
    """Show the form that imports agents."""
    return render_page(request, "agent_import.html", page=ImportPage(can_share(me, settings)))


@router.post("/ui/agents/_import")
async def import_agents(
    request: Request, me: deps.BrowserUser, settings: deps.SettingsDep, editor: deps.AgentEditorDep
) -> Response:
    """Create the agents of a pasted text."""
    form = await read_submitted_form(request)
    text, shared = form.text("text"), form.is_checked("shared")
    try:
        imported = await editor.import_agents(me, text, shared=shared)
    except FORM_ERRORS as error:
        # The fields of an agent are not fields of this form; its text is.
        errors = {"text": " ".join(field_errors(error, ImportPage.labels).values())}
        page = ImportPage(can_share(me, settings), text, shared, errors)
        return render_page(request, "agent_import.html", status=422, page=page)
    names = ", ".join(f"“{one_line(each.agent.name, 60)}”" for each in imported[:5])
    more = f" and {len(imported) - 5} more" if len(imported) > 5 else ""
    target = f"/ui/agents/{imported[0].id}" if len(imported) == 1 else "/ui/agents"
    return redirect_with_message(target, f"Imported {names}{more}.")


@router.get("/ui/agents/{ref}")
async def show_agent(
    request: Request,
    me: deps.CurrentUser,
    ref: str,
    agent_directory: deps.AgentDirectoryDep,
    chats: deps.ChatsDep,
) -> Response:
    """Show one agent without its tools, which the page loads separately."""
    entry = await _find_entry(agent_directory, me, ref)
    return render_page(request, "agent.html", page=_build_page(agent_directory, chats, me, entry))


@router.get("/ui/agents/{ref}/tools")
async def show_agent_tools(
    request: Request,
    me: deps.CurrentUser,
    ref: str,
    agent_directory: deps.AgentDirectoryDep,
    chats: deps.ChatsDep,
) -> Response:
    """Show one agent with its tools, or only the tools as a fragment for the script."""
    entry = await _find_entry(agent_directory, me, ref)
    page = _build_page(agent_directory, chats, me, entry)
    if not page.problems:
        tools = await agent_directory.resolve_agent_tools(me, entry.agent)
        page = _build_page(agent_directory, chats, me, entry, tools)
    return await render_large_page(
        request, "agent_tools.html" if is_fragment_request(request) else "agent.html", page=page
    )


@router.post("/ui/agents/{ref}/duplicate")
async def duplicate_agent(
    request: Request,
    me: deps.BrowserUser,
    ref: str,
    agent_directory: deps.AgentDirectoryDep,
    editor: deps.AgentEditorDep,
) -> Response:
    """Create a private copy of any agent, and open its form."""
    entry = await _find_entry(agent_directory, me, ref)
    copy = await editor.duplicate(me, entry.agent)
    return redirect_with_message(
        f"/ui/agents/{copy.id}/edit", f"“{one_line(copy.agent.name, 80)}” is your own copy."
    )


@router.get("/ui/agents/{ref}/delete")
async def show_delete_confirmation(
    request: Request, me: deps.BrowserUser, ref: str, editor: deps.AgentEditorDep
) -> Response:
    """Show the confirmation page."""
    stored = await editor.get_editable(me, ref)
    page = ConfirmPage(
        title=f"Delete “{one_line(stored.agent.name, 80)}”?",
        text=_describe_deletion(stored),
        action=f"/ui/agents/{stored.id}/delete",
        back=f"/ui/agents/{stored.id}",
    )
    return render_confirm_page(request, page)


@router.post("/ui/agents/{ref}/delete")
async def delete_agent(
    request: Request, me: deps.BrowserUser, ref: str, editor: deps.AgentEditorDep
) -> Response:
    """Delete a stored agent."""
    stored = await editor.delete(me, ref)
    return redirect_with_message("/ui/agents", f"“{one_line(stored.agent.name, 80)}” is deleted.")


def can_share(me: RequestUser, settings: Settings) -> bool:
    """Return whether the user may share agents, and there are people to share them with."""
    return me.is_admin and settings.people_mode is not PeopleMode.NONE


async def _find_entry(agent_directory: AgentDirectory, me: RequestUser, ref: str) -> AgentEntry:
    try:
        return await agent_directory.find_entry(me, ref)
    except AgentsError:
        # On a page, a missing agent is a 404, not an error of the configuration.
        raise NotFound(f"agent '{ref}' not found", hint="it may have been deleted") from None


def _describe_deletion(stored: StoredAgent) -> str:
    whose = "Nobody will be able to use it. " if stored.owner is None else ""
    return f"{whose}Chats with it stay, and need another agent to go on."


def _build_page(
    agent_directory: AgentDirectory,
    chats: ChatService,
    me: RequestUser,
    entry: AgentEntry,
    tools: AgentTools | None = None,
) -> AgentPage:
    agent = entry.agent
    place = f"{agent.file}:{agent.line}" if agent.file and agent.line else agent.file
    problems = agent_directory.find_bundle_problems(agent)
    warnings = [] if problems else [*agent_directory.find_agent_problems(me, agent)]
    if agent.model is not None:
        try:
            chats.models.pick(agent.model, me.user.principal)
        except NoSuchModel as error:
            warnings.append(Problem(error.cause, hint=error.hint))
    return AgentPage(entry, problems, warnings, place if me.is_admin else None, tools)
