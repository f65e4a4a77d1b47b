"""Form of a stored agent, with a preview of the tools that it gets. It works without JavaScript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from fastapi import Request, Response

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.definitions.validation import MAX_STARTERS
from toolyard.config.settings.table import Settings
from toolyard.core.current_config import CurrentConfig
from toolyard.errors import ToolyardError
from toolyard.policy.agent_patterns import compile_patterns, is_exact_name
from toolyard.registry.errors import Outdated
from toolyard.types.account import RequestUser
from toolyard.types.agent import Agent, StoredAgent
from toolyard.web import service_dependencies as deps
from toolyard.web.agent_tools import AgentDirectory, AgentEntry, AgentTool, AgentTools
from toolyard.web.routes import Routes
from toolyard.web.ui.agents.overview import AgentPage, can_share
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import one_line
from toolyard.web.ui.components.forms import FORM_ERRORS, SubmittedForm, field_errors, read_submitted_form
from toolyard.web.ui.components.render import render_large_page

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
class ToolGroup:
    """Tools of one server to choose from."""

    label: str
    native: bool
    tools: Sequence[AgentTool]


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
    def groups(self) -> list[ToolGroup]:
        """The tools by server, sorted by label; built-in tools last."""
        by_server: dict[str, list[AgentTool]] = {}
        for each in self.tools.tools:
            by_server.setdefault(each.server, []).append(each)
        groups = [ToolGroup(each[0].server_label, each[0].native, each) for each in by_server.values()]
        return sorted(groups, key=lambda group: (group.native, group.label.casefold()))

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


class AgentForms:
    """Builds the form for one request."""

    def __init__(
        self,
        me: RequestUser,
        settings: Settings,
        config: CurrentConfig,
        chats: ChatService,
        agent_directory: AgentDirectory,
    ) -> None:
        self._me = me
        self._can_share = can_share(me, settings)
        self._bundles = config.configuration.bundles
        self._models = chats.models
        self._agent_directory = agent_directory

    async def build(
        self,
        entered: EnteredAgent,
        stored: StoredAgent | None = None,
        error: ToolyardError | None = None,
    ) -> AgentForm:
        """Return the form with the entered values and the preview of its tools."""
        agent, directory = entered.agent, self._agent_directory
        problems = directory.find_bundle_problems(agent)
        # With unknown bundles, the tools to choose from are still those of the person.
        usable = replace(agent, bundles=()) if problems else agent
        tools = await directory.resolve_agent_tools(self._me, usable)
        preview = AgentPage(AgentEntry(agent), problems, heading="Preview", tools=_limit_tools(agent, tools))
        is_outdated = isinstance(error, Outdated)
        return AgentForm(
            entered,
            stored,
            tools,
            preview,
            self._list_models(agent.model),
            sorted({*self._bundles, *agent.bundles}),
            self._can_share,
            {} if error is None or is_outdated else field_errors(error, _LABELS),
            is_outdated,
        )

    def _list_models(self, current: str | None) -> list[tuple[str, str]]:
        person = self._me.user.principal
        labels = {each.id: each.label for each in self._models.choices_for(person)}
        default_id = self._models.default_for(person)
        default = labels.get(default_id or "", default_id)
        options = [("", f"Default ({default})" if default else "Default"), *labels.items()]
        if current is not None and current not in labels:
            options.append((current, current))
        return options


@router.get("/ui/agents/_new")
async def show_new_form(
    request: Request,
    me: deps.BrowserUser,
    settings: deps.SettingsDep,
    config: deps.ConfigDep,
    chats: deps.ChatsDep,
    agent_directory: deps.AgentDirectoryDep,
) -> Response:
    """Show an empty form. A new agent has no tools until some are chosen."""
    forms = AgentForms(me, settings, config, chats, agent_directory)
    page = await forms.build(EnteredAgent(Agent("", "", tools=())))
    return await render_large_page(request, "agent_form.html", page=page)


@router.post("/ui/agents/_preview")
async def show_preview(
    request: Request,
    me: deps.BrowserUser,
    settings: deps.SettingsDep,
    config: deps.ConfigDep,
    chats: deps.ChatsDep,
    agent_directory: deps.AgentDirectoryDep,
) -> Response:
    """Show the tools that the agent in the form would get, as a fragment for the script."""
    entered = _read_form(await read_submitted_form(request))
    page = await AgentForms(me, settings, config, chats, agent_directory).build(entered)
    return await render_large_page(request, "agent_preview.html", page=page)


@router.post("/ui/agents/_new")
async def create_agent(
    request: Request,
    me: deps.BrowserUser,
    settings: deps.SettingsDep,
    config: deps.ConfigDep,
    chats: deps.ChatsDep,
    agent_directory: deps.AgentDirectoryDep,
    editor: deps.AgentEditorDep,
) -> Response:
    """Create the agent."""
    form = await read_submitted_form(request)
    entered, forms = _read_form(form), AgentForms(me, settings, config, chats, agent_directory)
    if form.text("do") == "preview":
        return await render_large_page(request, "agent_form.html", page=await forms.build(entered))
    try:
        stored = await editor.create(me, entered.agent, shared=entered.shared)
    except FORM_ERRORS as error:
        page = await forms.build(entered, None, error)
        return await render_large_page(request, "agent_form.html", status=422, page=page)
    name = one_line(stored.agent.name, 80)
    return redirect_with_message(f"/ui/agents/{stored.id}", f"“{name}” is created.")


@router.get("/ui/agents/{ref}/edit")
async def show_edit_form(
    request: Request,
    me: deps.BrowserUser,
    ref: str,
    settings: deps.SettingsDep,
    config: deps.ConfigDep,
    chats: deps.ChatsDep,
    agent_directory: deps.AgentDirectoryDep,
    editor: deps.AgentEditorDep,
) -> Response:
    """Show the form of a stored agent."""
    stored = await editor.get_editable(me, ref)
    forms = AgentForms(me, settings, config, chats, agent_directory)
    page = await forms.build(EnteredAgent.from_stored(stored), stored)
    return await render_large_page(request, "agent_form.html", page=page)


@router.post("/ui/agents/{ref}/edit")
async def save_agent(
    request: Request,
    me: deps.BrowserUser,
    ref: str,
    settings: deps.SettingsDep,
    config: deps.ConfigDep,
    chats: deps.ChatsDep,
    agent_directory: deps.AgentDirectoryDep,
    editor: deps.AgentEditorDep,
) -> Response:
    """Save the agent. If it was changed meanwhile, the form is shown again, and saves when sent once more."""
    form = await read_submitted_form(request)
    entered, forms = _read_form(form), AgentForms(me, settings, config, chats, agent_directory)
    old = await editor.get_editable(me, ref)
    if form.text("do") == "preview":
        return await render_large_page(request, "agent_form.html", page=await forms.build(entered, old))
    shared = entered.shared if me.is_admin and form.is_checked("can_share") else None
    try:
        stored = await editor.edit(me, ref, entered.agent, version=entered.version, shared=shared)
    except (*FORM_ERRORS, Outdated) as error:
        if isinstance(error, Outdated):
            entered = replace(entered, version=old.version)
        page = await forms.build(entered, old, error)
        status = 409 if page.is_outdated else 422
        return await render_large_page(request, "agent_form.html", status=status, page=page)
    name = one_line(stored.agent.name, 80)
    return redirect_with_message(f"/ui/agents/{stored.id}", f"“{name}” is saved.")


def _read_form(form: SubmittedForm) -> EnteredAgent:
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
    version = form.text("version")
    number = int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0
    return EnteredAgent(agent, number, form.is_checked("shared"), temperature, max_steps)


# Texts that are not numbers become values that the check of the agent refuses.


def _parse_temperature(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return float("nan")


def _parse_steps(text: str) -> int | None:
    return (int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0) if text else None


def _is_ticked(text: str) -> bool:
    return is_exact_name(text) and not text.startswith("!")


def _limit_tools(agent: Agent, tools: AgentTools) -> AgentTools:
    """Return the tools that the agent's list names, including those that policy hides from it."""
    patterns = compile_patterns(agent.tools)
    return replace(tools, tools=tuple(each for each in tools.tools if patterns.allows(each.name)))
