"""Server-rendered HTML pages over the same services as the API.

Every page works without JavaScript; the scripts in ``static`` only add comfort. Pages may import ``web``
services and everything below them, never ``web.api`` routes except the shared event streams. Start with
``components.responses`` and ``home``."""

from toolyard.web.routes import Routes
from toolyard.web.ui import command_palette, documentation, home, usage
from toolyard.web.ui.account import approvals, connect, sign_in, token_budget, tokens
from toolyard.web.ui.admin import audit, models, people
from toolyard.web.ui.agents import form as agent_form
from toolyard.web.ui.agents import overview as agents
from toolyard.web.ui.chat import content_insertion, management, pages, stream, tool_console
from toolyard.web.ui.components import responses, showcase
from toolyard.web.ui.instances import detail, form, icons, oauth, overview
from toolyard.web.ui.registry import detail as registry_view
from toolyard.web.ui.registry import form as registry_form
from toolyard.web.ui.registry import known_servers, proposals, tool_changes
from toolyard.web.ui.registry import overview as registry_list
from toolyard.web.ui.tools import page, results

__all__ = ["router"]

router = Routes(include_in_schema=False)
# Routes with a fixed path come before routes with an id in the same place, because the first match wins.
for _each in (
    home,
    command_palette,
    tool_console,
    content_insertion,
    pages,
    management,
    results,
    stream,
    approvals,
    sign_in,
    oauth,
    agent_form,
    agents,
    overview,
    icons,
    form,
    page,
    detail,
    registry_list,
    known_servers,
    proposals,
    registry_form,
    registry_view,
    tool_changes,
    people,
    models,
    audit,
    usage,
    tokens,
    connect,
    token_budget,
    responses,
    showcase,
    documentation,
):
    router.include(_each.router)
