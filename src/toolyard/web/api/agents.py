"""``/agents``: agents of AGENTS.md and stored ones, and their tools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, cast

from fastapi import Response
from pydantic import Field

from toolyard.agents.definitions.front_matter import MAX_STEPS, MAX_TEMPERATURE
from toolyard.agents.definitions.validation import MAX_STARTERS
from toolyard.types.agent import Agent, StoredAgent
from toolyard.web import service_dependencies as deps
from toolyard.web.access.authentication import RequestUser
from toolyard.web.agent_tools import AgentEntry
from toolyard.web.api import base as api
from toolyard.web.api.chat_models import VisibleTool
from toolyard.web.api.tools import ServerFailure
from toolyard.web.problem_details import describe_error

__all__ = ["router"]

router = api.ApiRoutes(prefix="/agents", tags=["agents"])


class AgentResponse(api.ApiModel, schema="AgentShown"):
    """An agent."""

    id: str = Field(examples=["reviewer"])
    name: str = Field(examples=["Reviewer"])
    description: str
    model: str | None = Field(description="Model of the agent; null for the default model.")
    tools: list[str] | None = Field(description="Tool patterns as written in the file; null for all tools.")
    bundles: list[str]
    mode: Literal["direct", "meta"] | None = Field(
        description="Tool mode; null to choose by the cost of the tools."
    )
    file: str | None = Field(description="File of the definition. Shown to admins only.")
    line: int | None = Field(description="Line of the definition. Shown to admins only.")
    starters: list[str] = Field(description="Messages that an empty chat with the agent offers.")
    origin: Literal["file", "own", "shared"] = Field(
        description="`file`: defined in AGENTS.md; `own`: your own, private; `shared`: shared with everyone."
    )
    stored_id: str | None = Field(description="Id for changes; null for an agent of AGENTS.md.")
    version: int | None = Field(description="Number of the last change; null for an agent of AGENTS.md.")
    editable: bool = Field(description="Whether you may change it.")


class AgentDetails(AgentResponse):
    """An agent with its instructions."""

    prompt: str
    temperature: float | None
    max_steps: int | None


class AgentFields(api.RequestModel):
    """The fields of an agent."""

    name: str = Field(examples=["Reviewer"])
    description: str = ""
    prompt: str = Field("", description="Instructions for the model.")
    model: str | None = Field(None, description="Model of the agent; null for the default model.")
    temperature: float | None = Field(None, ge=0, le=MAX_TEMPERATURE)
    tools: list[str] | None = Field(
        None, description="Names and patterns, of which the last match wins; null for all tools."
    )
    bundles: list[str] = Field(default_factory=list[str])
    mode: Literal["direct", "meta"] | None = None
    max_steps: int | None = Field(None, ge=1, le=MAX_STEPS)
    starters: list[str] = Field(default_factory=list[str], max_length=MAX_STARTERS)


class AgentRequest(AgentFields):
    """A new agent."""

    shared: bool = Field(False, description="Whether to share it with everyone. Admins only.")


class AgentUpdateRequest(AgentFields):
    """Changes of an agent."""

    name: str = ""
    shared: bool | None = Field(
        None, description="Whether to share it with everyone; null to leave it as it is. Admins only."
    )
    version: int = Field(description="Version that was changed. If it is not the newest, nothing is saved.")


class AgentImportRequest(api.RequestModel):
    """Agents in the format of AGENTS.md."""

    text: str
    shared: bool = Field(False, description="Whether to share them with everyone. Admins only.")


class AgentProblem(api.ApiModel):
    """A problem in AGENTS.md, or in a text of its format."""

    message: str
    file: str | None
    line: int | None
    path: str = Field(
        description="Agent and key that the problem is about, if any.", examples=["Reviewer.tools"]
    )
    hint: str | None


class ImportedAgents(api.ItemList[AgentDetails]):
    """The agents that were created."""

    notes: list[AgentProblem] = Field(
        description="Parts of the text that were ignored, such as unknown keys."
    )


class AgentList(api.ItemList[AgentResponse]):
    """The agents in use."""

    overridden: list[AgentResponse] = Field(
        description="Stored agents that are not used, because AGENTS.md, or you, have one of the same id."
    )
    problems: list[AgentProblem] = Field(
        description="Problems of the current file or of single agents. Shown to admins only. While the file "
        "is not valid, the last valid agents stay in use."
    )


class AgentToolResponse(VisibleTool, schema="AgentToolShown"):
    """A tool and the access that the agent has to it in a chat."""

    through: Literal["direct", "meta"] | None = Field(
        description="Access by its own definition (`direct`) or through the meta tools; null if hidden."
    )


class AgentToolList(api.ItemList[AgentToolResponse]):
    """All your tools, with the access that the agent has to each."""

    because: str = Field(description="Reason for offering meta tools; empty if there are none.")
    unmatched: list[str] = Field(description="Patterns of the agent that match none of these tools.")
    failures: list[ServerFailure] = Field(description="Servers whose tools could not be listed.")


@router.get("", summary="List agents")
async def list_agents(
    config: deps.ConfigDep, agent_directory: deps.AgentDirectoryDep, request_user: api.UserWithRead
) -> AgentList:
    """Return the agents that you may use: those of AGENTS.md in file order, then your own and the shared
    ones by name."""
    entries = await agent_directory.list_entries(request_user)
    used = [each for each in entries if each.overriding is None]
    problems = [
        *config.loaded_agents.problems,
        *(
            problem
            for each in used
            for problem in agent_directory.find_agent_problems(request_user, each.agent)
        ),
    ]
    return AgentList(
        items=[_build_response(each, request_user) for each in used],
        overridden=[_build_response(each, request_user) for each in entries if each.overriding is not None],
        problems=[AgentProblem.of(each) for each in problems] if request_user.is_admin else [],
    )


@router.post("", status_code=201, errors=[403, 409, 413, 415], summary="Create an agent")
async def create_agent(
    editor: deps.AgentEditorDep, request_user: api.AgentWriter, given: AgentRequest, response: Response
) -> AgentDetails:
    """Create an agent of your own, or as an admin one for everybody. It never gets more tools than its
    user may use."""
    stored = await editor.create(request_user, Agent("", **_read_fields(given)), shared=given.shared)
    response.headers["Location"] = f"/api/v1/agents/{stored.id}"
    return _build_details(_make_entry(stored), request_user)


@router.post("/import", status_code=201, errors=[403, 409, 413, 415], summary="Import agents")
async def import_agents(
    editor: deps.AgentEditorDep, request_user: api.AgentWriter, given: AgentImportRequest
) -> ImportedAgents:
    """Create all agents of a text in the format of AGENTS.md, as `export` returns it."""
    imported, notes = await editor.import_agents(request_user, given.text, shared=given.shared)
    return ImportedAgents(
        items=[_build_details(_make_entry(each), request_user) for each in imported],
        notes=[AgentProblem.of(each) for each in notes],
    )


@router.get("/{id}", errors=[404], summary="Get an agent")
async def get_agent(
    agent_directory: deps.AgentDirectoryDep, request_user: api.UserWithRead, id: api.PathId
) -> AgentDetails:
    """Return an agent by its id, or a stored one by its `stored_id`."""
    return _build_details(await agent_directory.find_entry(request_user, id), request_user)


@router.patch("/{id}", errors=[403, 404, 409, 413, 415], summary="Change an agent")
async def change_agent(
    editor: deps.AgentEditorDep, request_user: api.AgentWriter, id: api.PathId, given: AgentUpdateRequest
) -> AgentDetails:
    """Change a stored agent, by its `stored_id`; fields that are left out stay as they are. Shared agents are
    changed by admins. Chats follow an agent to its new name."""
    old = await editor.get_editable(request_user, id)
    draft = replace(old.agent, **_read_fields(given))
    stored = await editor.edit(request_user, id, draft, version=given.version, shared=given.shared)
    return _build_details(_make_entry(stored), request_user)


@router.delete("/{id}", status_code=204, errors=[403, 404], summary="Delete an agent")
async def delete_agent(editor: deps.AgentEditorDep, request_user: api.AgentWriter, id: api.PathId) -> None:
    """Delete a stored agent, by its `stored_id`. Chats with it stay, and need another agent to go on."""
    await editor.delete(request_user, id)


@router.get(
    "/{id}/tools",
    response_model=AgentToolList,
    errors=[404],
    summary="List the tools of an agent",
)
async def list_agent_tools(
    agent_directory: deps.AgentDirectoryDep, request_user: api.UserWithRead, id: api.PathId
) -> Response:
    """Return all your tools, whether the agent can use them in a chat, and the reason for hidden ones. A
    token with limits shows only the tools that it covers."""
    entry = await agent_directory.find_entry(request_user, id)
    resolved = await agent_directory.resolve_agent_tools(request_user, entry.agent)
    listed = AgentToolList(
        items=[],
        because=resolved.because,
        unmatched=list(resolved.unmatched),
        failures=[
            ServerFailure(server=each.server, problem=describe_error(each.error)[0])
            for each in resolved.failures
        ],
    )
    tools = (AgentToolResponse.values_of(each, shown=each.through is not None) for each in resolved.tools)
    return await api.respond_with_items(tools, listed)


def _read_fields(given: AgentFields) -> dict[str, Any]:
    """Return the fields of an agent that a request contains."""
    names = given.model_fields_set & AgentFields.model_fields.keys()
    values: dict[str, Any] = {name: getattr(given, name) for name in names}
    return {
        name: tuple(cast("list[str]", value)) if isinstance(value, list) else value
        for name, value in values.items()
    }


def _make_entry(stored: StoredAgent) -> AgentEntry:
    return AgentEntry(stored.agent, stored, is_editable=True)


def _build_details(entry: AgentEntry, request_user: RequestUser) -> AgentDetails:
    return AgentDetails.of(entry.agent, **_describe_entry(entry, request_user))


def _build_response(entry: AgentEntry, request_user: RequestUser) -> AgentResponse:
    return AgentResponse.of(entry.agent, **_describe_entry(entry, request_user))


def _describe_entry(entry: AgentEntry, request_user: RequestUser) -> dict[str, Any]:
    """Return the fields of a response that are not those of the agent itself."""
    agent, stored = entry.agent, entry.stored
    return {
        "file": agent.file if request_user.is_admin else None,
        "line": agent.line if request_user.is_admin else None,
        "origin": entry.origin,
        "stored_id": None if stored is None else stored.id,
        "version": None if stored is None else stored.version,
        "editable": entry.is_editable,
    }
