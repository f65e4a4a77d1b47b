"""Form of a stored agent, with a preview of the tools that it gets. It works without JavaScript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Annotated

from fastapi import Depends, Request, Response

from toolyard.agents.definitions.validation import MAX_STARTERS, find_tool_problems
from toolyard.errors import ToolyardError
from toolyard.policy.agent_patterns import compile_patterns, is_exact_name
from toolyard.registry.errors import Outdated
from toolyard.types.agent import Agent, StoredAgent
from toolyard.web import service_dependencies as deps
from toolyard.web.agent_tools import AgentEntry, AgentTools
from toolyard.web.routes import Routes
from toolyard.web.ui.agents.overview import AgentPage, AgentToolGroup, can_share, group_agent_tools
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import one_line

__all__ = ["router"]

router = Routes()

_FIRST_STARTERS = 3
"""Number of fields for starter prompts in an empty form."""
_LABELS = {
    "name": "Name",
    "description": "Description",
    "prompt": "Instructions",
    "model": "Model",
    "tools": "Tools",
    "starters": "Starter prompts",
    "bundles": "Bundles",
    "temperature": "Temperature",
    "max_steps": "Maximum steps",
}


@dataclass(frozen=True, slots=True)
class EnteredAgent:
    """Values of the form. Numbers are kept as entered, also if they are not valid."""

    agent: Agent
    version: int = 0
    shared: bool = False
    temperature: str = ""
    max_steps: str = ""

    @classmethod
    def from_stored(cls, stored: StoredAgent) -> EnteredAgent:
        """Return the values of an agent."""
        agent = stored.agent
        numbers = ("" if each is None else f"{each:g}" for each in (agent.temperature, agent.max_steps))
        return cls(agent, stored.version, stored.owner is None, *numbers)


@dataclass(frozen=True, slots=True)
class AgentForm:
    """Content of the form. ``stored`` is None for a new agent."""

    entered: EnteredAgent
    stored: StoredAgent | None
    tools: AgentTools
    preview: AgentPage
    models: Sequence[tuple[str, str]]
    bundles: Sequence[str]
    can_share: bool
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    is_outdated: bool = False

    labels = _LABELS

    @property
    def ticked(self) -> tuple[str, ...]:
        """Names of tools at the start of the list, which are ticked; the patterns follow them."""
        names = takewhile(_is_ticked, self.entered.agent.tools or ())
        return tuple(dict.fromkeys(names))

    @property
    def patterns(self) -> Sequence[str]:
        """The rest of the list, in its order."""
        tools = self.entered.agent.tools or ()
        return tools[len(list(takewhile(_is_ticked, tools))) :]

    @property
    def groups(self) -> list[AgentToolGroup]:
        """The tools by server, sorted by label; built-in tools last."""
        return sorted(
            group_agent_tools(self.tools.tools), key=lambda group: (group.native, group.label.casefold())
        )

    @property
    def missing(self) -> list[str]:
        """Ticked tools that do not exist now, for example because their server went away."""
        known = {each.name for each in self.tools.tools}
        return [name for name in self.ticked if name not in known]

    @property
    def starters(self) -> Sequence[str]:
        """Starter prompts, with empty fields for further ones."""
        given = self.entered.agent.starters
        empty = min(max(_FIRST_STARTERS - len(given), 1), MAX_STARTERS - len(given))
        return (*given, *[""] * empty)

    @property
    def has_options(self) -> bool:
        """True if the part for less common fields is open: they are used, or have errors."""
        agent = self.entered.agent
        used = any((self.entered.temperature, self.entered.max_steps, agent.mode, agent.bundles))
        return used or not {"temperature", "max_steps", "bundles"}.isdisjoint(self.errors)

    @property
    def action(self) -> str:
        """URL that receives the form."""
        return "/ui/agents/_new" if self.stored is None else f"/ui/agents/{self.stored.id}/edit"

    @property
    def back(self) -> str:
        """Target of Cancel."""
        return "/ui/agents" if self.stored is None else f"/ui/agents/{self.stored.id}"


@dataclass(frozen=True, slots=True)
class _AgentForms:
    """Builds the form for one request, and renders it."""

    request: Request
    me: deps.BrowserUser
    settings: deps.SettingsDep
    config: deps.ConfigDep
    chats: deps.ChatsDep
    agent_directory: deps.AgentDirectoryDep

    async def render(
        self,
        entered: EnteredAgent,
        stored: StoredAgent | None = None,
        error: ToolyardError | None = None,
        *,
        template: str = "agent_form.html",
    ) -> Response:
        """Render the form with the entered values and the preview of its tools."""
        agent, directory = entered.agent, self.agent_directory
        problems = directory.find_bundle_problems(agent)
        # With unknown bundles, the tools to choose from are still those of the person.
        usable = replace(agent, bundles=()) if problems else agent
        # Thousands of patterns take seconds to compile. They are refused when the agent is saved.
        if find_tool_problems([each for each in agent.tools or () if each != "!"]):
            usable = replace(usable, tools=())
        tools = await directory.resolve_agent_tools(self.me, usable)
        preview = AgentPage(AgentEntry(agent), problems, heading="Preview", tools=_limit_tools(usable, tools))
        is_outdated = isinstance(error, Outdated)
        page = AgentForm(
            entered,
            stored,
            tools,
            preview,
            self._list_models(agent.model),
            sorted({*self.config.configuration.bundles, *agent.bundles}),
            can_share(self.me, self.settings),
            {} if error is None or is_outdated else forms.field_errors(error, _LABELS),
            is_outdated,
        )
        status = 200 if error is None else 409 if is_outdated else 422
        return await responses.render_large_page(self.request, template, status=status, page=page)

    def _list_models(self, current: str | None) -> list[tuple[str, str]]:
        person, models = self.me.user.principal, self.chats.models
        labels = {each.id: each.label for each in models.choices_for(person)}
        default_id = models.default_for(person)
        default = labels.get(default_id or "", default_id)
        options = [("", f"Default ({default})" if default else "Default"), *labels.items()]
        if current is not None and current not in labels:
            options.append((current, current))
        return options


_AgentFormsDep = Annotated[_AgentForms, Depends()]


@router.get("/ui/agents/_new")
async def show_new_form(form: _AgentFormsDep) -> Response:
    """Show an empty form. A new agent has no tools until some are chosen."""
    return await form.render(EnteredAgent(Agent("", "", tools=())))


@router.post("/ui/agents/_preview")
async def show_preview(form: _AgentFormsDep, submitted: forms.FormDep) -> Response:
    """Show the tools that the agent in the form would get, as a fragment for the script."""
    return await form.render(_read_form(submitted), template="agent_preview.html")


@router.post("/ui/agents/_new")
async def create_agent(
    me: deps.BrowserUser, submitted: forms.FormDep, form: _AgentFormsDep, editor: deps.AgentEditorDep
) -> Response:
    """Create the agent."""
    entered = _read_form(submitted)
    if submitted.text("do") == "preview":
        return await form.render(entered)
    try:
        stored = await editor.create(me, entered.agent, shared=entered.shared)
    except forms.FORM_ERRORS as error:
        return await form.render(entered, None, error)
    name = one_line(stored.agent.name, 80)
    return responses.redirect_to(f"/ui/agents/{stored.id}", f"“{name}” was created.")


@router.get("/ui/agents/{ref}/edit")
async def show_edit_form(
    me: deps.BrowserUser, ref: str, form: _AgentFormsDep, editor: deps.AgentEditorDep
) -> Response:
    """Show the form of a stored agent."""
    stored = await editor.get_editable(me, ref)
    return await form.render(EnteredAgent.from_stored(stored), stored)


@router.post("/ui/agents/{ref}/edit")
async def save_agent(
    me: deps.BrowserUser,
    ref: str,
    submitted: forms.FormDep,
    form: _AgentFormsDep,
    editor: deps.AgentEditorDep,
) -> Response:
    """Save the agent. If it was changed meanwhile, the form is shown again, and saves when sent once more."""
    entered, old = _read_form(submitted), await editor.get_editable(me, ref)
    if submitted.text("do") == "preview":
        return await form.render(entered, old)
    shared = entered.shared if me.is_admin and submitted.is_checked("can_share") else None
    try:
        stored = await editor.edit(me, ref, entered.agent, version=entered.version, shared=shared)
    except Outdated as error:
        # Not ``old``: it may have been read before the change.
        current = await editor.get_editable(me, ref)
        return await form.render(replace(entered, version=current.version), current, error)
    except forms.FORM_ERRORS as error:
        return await form.render(entered, old, error)
    name = one_line(stored.agent.name, 80)
    return responses.redirect_to(f"/ui/agents/{stored.id}", f"“{name}” was saved.")


def _read_form(form: forms.SubmittedForm) -> EnteredAgent:
    temperature, max_steps = form.text("temperature").strip(), form.text("max_steps").strip()
    mode = form.text("mode")
    tools = None if form.text("which") == "all" else (*form.all_values("tool"), *form.words("patterns"))
    agent = Agent(
        "",
        form.text("name"),
        form.text("description"),
        form.text("prompt"),
        form.text("model") or None,
        _parse_temperature(temperature),
        tools,
        form.all_values("bundle"),
        mode if mode in ("direct", "meta") else None,
        _parse_steps(max_steps),
        starters=tuple(each for each in form.all_values("starter") if each.strip()),
    )
    version = forms.parse_number(form.text("version")) or 0
    return EnteredAgent(agent, version, form.is_checked("shared"), temperature, max_steps)


# Texts that are not numbers become values that the check of the agent refuses.


def _parse_temperature(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return float("nan")


def _parse_steps(text: str) -> int | None:
    return (forms.parse_number(text) or 0) if text else None


def _is_ticked(text: str) -> bool:
    return is_exact_name(text) and not text.startswith("!")


def _limit_tools(agent: Agent, tools: AgentTools) -> AgentTools:
    """Return the tools that the agent's list names, including those that policy hides from it."""
    patterns = compile_patterns(agent.tools)
    return replace(tools, tools=tuple(each for each in tools.tools if patterns.allows(each.name)))
