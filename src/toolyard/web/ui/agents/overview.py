"""``/ui/agents``: agents, their instructions and their tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends, Request, Response

from toolyard.agents.models.errors import NoSuchModel
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.core.agent_editor import describe_import_problem
from toolyard.errors import AgentsError, Problem
from toolyard.registry.errors import NotFound
from toolyard.types.account import RequestUser
from toolyard.web import service_dependencies as deps
from toolyard.web.agent_tools import AgentDirectory, AgentEntry, AgentTool, AgentTools
from toolyard.web.routes import Routes
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import count, one_line, sentence

__all__ = ["AgentPage", "AgentToolGroup", "can_share", "group_agent_tools", "router"]

router = Routes()

_IMPORT_LABELS = {"text": "Text", "name": "Name"}
_MAX_SHOWN_NOTES = 3


@dataclass(frozen=True, slots=True)
class AgentToolGroup:
    """Tools of one server."""

    server: str
    label: str
    native: bool
    tools: Sequence[AgentTool]

    @property
    def seen(self) -> list[AgentTool]:
        """Tools available to the agent."""
        return [each for each in self.tools if each.through is not None]

    @property
    def hidden(self) -> list[AgentTool]:
        """Tools hidden from the agent."""
        return [each for each in self.tools if each.through is None]


@dataclass(frozen=True, slots=True)
class AgentPage:
    """Content of an agent's page. ``tools`` is None if they are loaded separately."""

    entry: AgentEntry
    problems: Sequence[Problem] = ()
    """Reasons why it cannot be used."""
    warnings: Sequence[Problem] = ()
    """Unknown tools of an agent that can be used, and a model that is not available."""
    place: str | None = None
    model: str | None = None
    """Name of its model, unless that is the default."""
    tools: AgentTools | None = None
    heading: str = "Tools"

    @property
    def groups(self) -> list[AgentToolGroup]:
        """The tools by server. Groups with available tools come first, then by label, built-in tools last."""
        groups = group_agent_tools(() if self.tools is None else self.tools.tools)
        return sorted(groups, key=lambda each: (not each.seen, each.native, each.label.lower(), each.server))

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


def group_agent_tools(tools: Sequence[AgentTool]) -> list[AgentToolGroup]:
    """Group tools by server."""
    by_server: dict[str, list[AgentTool]] = {}
    for each in tools:
        by_server.setdefault(each.server, []).append(each)
    return [
        AgentToolGroup(
            server, "Built-in tools" if group[0].native else group[0].server_label, group[0].native, group
        )
        for server, group in by_server.items()
    ]


@router.get("/ui/agents")
async def show_agents(
    request: Request,
    me: deps.CurrentUser,
    config: deps.ConfigDep,
    agent_directory: deps.AgentDirectoryDep,
    chats: deps.ChatsDep,
) -> Response:
    """Show all agents, and to admins the problems of their file."""
    entries = await agent_directory.list_entries(me)
    models = {each.agent.model for each in entries if each.agent.model}
    file = config.loaded_agents.path
    # Problems of agents that cannot be used, by the reference of the agent.
    broken = {
        each.ref: found for each in entries if (found := agent_directory.find_bundle_problems(each.agent))
    }
    return responses.render_page(
        request,
        "agents.html",
        entries=entries,
        model_titles={each: chats.models.find_title(each, me.user.principal) for each in models},
        broken=broken,
        # Unknown tools of the others, by the same.
        warnings={
            each.ref: agent_directory.find_agent_problems(me, each.agent)
            for each in entries
            if each.ref not in broken
        },
        problems=config.loaded_agents.problems if me.is_admin else (),
        file=str(file) if me.is_admin else None,
        file_exists=file.is_file(),
    )


# No agent has an id with an underscore, so these paths are not those of agents.


@router.get("/ui/agents/_import")
async def show_import_form(request: Request, me: deps.BrowserUser, settings: deps.SettingsDep) -> Response:
    """Show the form that imports agents."""
    return _render_import_form(request, can_share(me, settings))


@router.post("/ui/agents/_import")
async def import_agents(
    request: Request,
    me: deps.BrowserUser,
    form: forms.FormDep,
    settings: deps.SettingsDep,
    editor: deps.AgentEditorDep,
) -> Response:
    """Create the agents of a pasted text."""
    text, shared = form.text("text"), form.is_checked("shared")
    try:
        imported, notes = await editor.import_agents(me, text, shared=shared)
    except forms.FORM_ERRORS as error:
        # The fields of an agent are not fields of this form; its text is.
        message = " ".join(forms.field_errors(error, _IMPORT_LABELS).values())
        return _render_import_form(request, can_share(me, settings), text, shared, message)
    names = ", ".join(f"“{one_line(each.agent.name, 60)}”" for each in imported[:5])
    more = f" and {len(imported) - 5} more" if len(imported) > 5 else ""
    target = f"/ui/agents/{imported[0].id}" if len(imported) == 1 else "/ui/agents"
    message = f"Imported {names}{more}."
    if not notes:
        return responses.redirect_to(target, message)
    told = [one_line(sentence(describe_import_problem(each))) for each in notes[:_MAX_SHOWN_NOTES]]
    if len(notes) > _MAX_SHOWN_NOTES:
        told.append(f"{count(len(notes) - _MAX_SHOWN_NOTES, 'more note')}.")
    hint = notes[0].hint if len(notes) == 1 else None
    return responses.redirect_to(target, " ".join([message, *told]), kind="note", hint=hint)


def _render_import_form(
    request: Request, may_share: bool, text: str = "", shared: bool = False, error: str = ""
) -> Response:
    return responses.render_page(
        request,
        "agent_import.html",
        can_share=may_share,
        text=text,
        shared=shared,
        errors={"text": error} if error else None,
        labels=_IMPORT_LABELS,
    )


async def _find_entry(agent_directory: AgentDirectory, me: RequestUser, ref: str) -> AgentEntry:
    try:
        return await agent_directory.find_entry(me, ref)
    except AgentsError:
        # On a page, a missing agent is a 404, not an error of the configuration.
        raise NotFound(f"agent '{ref}' not found", hint="it may have been deleted") from None


async def _load_page(
    me: deps.CurrentUser, ref: str, agent_directory: deps.AgentDirectoryDep, chats: deps.ChatsDep
) -> AgentPage:
    """Return the page of an agent without its tools. Raises NotFound."""
    entry = await _find_entry(agent_directory, me, ref)
    agent = entry.agent
    place = f"{agent.file}:{agent.line}" if agent.file and agent.line else agent.file
    problems = agent_directory.find_bundle_problems(agent)
    warnings = [] if problems else [*agent_directory.find_agent_problems(me, agent)]
    if agent.model is not None:
        try:
            chats.models.pick(agent.model, me.user.principal)
        except NoSuchModel as error:
            warnings.append(Problem(error.cause, hint=error.hint))
    model = chats.models.find_title(agent.model, me.user.principal) if agent.model else None
    return AgentPage(entry, problems, warnings, place if me.is_admin else None, model)


_AgentPageDep = Annotated[AgentPage, Depends(_load_page)]


@router.get("/ui/agents/{ref}")
async def show_agent(request: Request, me: deps.CurrentUser, page: _AgentPageDep) -> Response:
    """Show one agent without its tools, which the page loads separately."""
    return responses.render_page(request, "agent.html", page=page)


@router.get("/ui/agents/{ref}/tools")
async def show_agent_tools(
    request: Request, me: deps.CurrentUser, page: _AgentPageDep, agent_directory: deps.AgentDirectoryDep
) -> Response:
    """Show one agent with its tools, or only the tools as a fragment for the script."""
    if not page.problems:
        page = replace(page, tools=await agent_directory.resolve_agent_tools(me, page.entry.agent))
    return await responses.render_large_page(
        request, "agent_tools.html" if responses.is_fragment_request(request) else "agent.html", page=page
    )


@router.post("/ui/agents/{ref}/duplicate")
async def duplicate_agent(
    me: deps.BrowserUser,
    ref: str,
    agent_directory: deps.AgentDirectoryDep,
    editor: deps.AgentEditorDep,
) -> Response:
    """Create a private copy of any agent, and open its form."""
    entry = await _find_entry(agent_directory, me, ref)
    copy = await editor.duplicate(me, entry.agent)
    return responses.redirect_to(
        f"/ui/agents/{copy.id}/edit",
        f"“{one_line(copy.agent.name, 80)}” was created. Only you can use and change this copy.",
    )


@router.get("/ui/agents/{ref}/delete")
async def show_delete_confirmation(
    request: Request, me: deps.BrowserUser, ref: str, editor: deps.AgentEditorDep
) -> Response:
    """Show the confirmation page."""
    stored = await editor.get_editable(me, ref)
    whose = "Nobody will be able to use it. " if stored.owner is None else ""
    return responses.render_confirmation(
        request,
        title=f"Delete “{one_line(stored.agent.name, 80)}”?",
        text=f"{whose}Its chats are kept. To continue one, choose another agent.",
        action=f"/ui/agents/{stored.id}/delete",
        back=f"/ui/agents/{stored.id}",
    )


@router.post("/ui/agents/{ref}/delete")
async def delete_agent(me: deps.BrowserUser, ref: str, editor: deps.AgentEditorDep) -> Response:
    """Delete a stored agent."""
    stored = await editor.delete(me, ref)
    return responses.redirect_to("/ui/agents", f"“{one_line(stored.agent.name, 80)}” was deleted.")


def can_share(me: RequestUser, settings: Settings) -> bool:
    """Return whether the user may share agents, and there are people to share them with."""
    return me.is_admin and settings.people_mode is not PeopleMode.NONE
