"""Pages: forms and links over the same services as the API. They work without script, and better with it."""

from __future__ import annotations

from fastapi import APIRouter

from toolyard.web.ui import (
    agents,
    approvals,
    audit,
    changes,
    chat,
    chat_console,
    chat_keeping,
    chat_stream,
    chat_tools,
    config_servers,
    connect,
    dev,
    home,
    instance_form,
    instance_view,
    instances,
    oauth,
    people,
    registry_form,
    registry_list,
    registry_view,
    signing_in,
    theme,
    tokens,
    tool_page,
)

__all__ = ["router"]

router = APIRouter(include_in_schema=False)
# A page with a name comes before one whose name is an id.
for _each in (
    home,
    chat_console,
    chat,
    chat_keeping,
    chat_stream,
    chat_tools,
    approvals,
    signing_in,
    oauth,
    config_servers,
    agents,
    instances,
    instance_form,
    tool_page,
    instance_view,
    registry_list,
    registry_form,
    registry_view,
    changes,
    people,
    audit,
    tokens,
    connect,
    theme,
    dev,
):
    router.include_router(_each.router)
