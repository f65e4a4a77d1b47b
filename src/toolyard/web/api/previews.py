"""Response models of server previews."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from toolyard.types.tool import Definition
from toolyard.web.api.dependencies import ApiModel
from toolyard.web.problem_details import ProblemDetails, describe_error
from toolyard.web.servers.previews import ServerPreview

__all__ = ["PreviewResponse", "PreviewTool", "build_preview_model"]


class PreviewTool(BaseModel):
    """A tool as defined by its server."""

    name: str = Field(description="Name of the tool, as the server defines it.")
    title: str | None
    description: str
    annotations: dict[str, Any]
    input_schema: dict[str, Any]
    token_cost: int = Field(description="Estimated size of the definition, in tokens.")


class PreviewResource(BaseModel):
    """A resource or a resource template."""

    uri: str
    name: str
    description: str


class PreviewPrompt(BaseModel):
    """A prompt."""

    name: str
    description: str


class PreviewResponse(ApiModel, schema="PreviewShown"):
    """Contents of a server, possibly incomplete if there was an error."""

    ok: bool
    error: ProblemDetails | None = Field(description="Error of the preview, if any.")
    seconds: float
    protocol_version: str | None
    server_info: dict[str, Any]
    capabilities: dict[str, Any]
    instructions: str | None
    tools: list[PreviewTool]
    token_cost: int
    set_aside: list[str] = Field(description="Tools with an invalid definition, each with the reason.")
    resources: list[PreviewResource]
    resource_templates: list[PreviewResource]
    prompts: list[PreviewPrompt]


def build_preview_model(preview: ServerPreview) -> PreviewResponse:
    """Return the response model of a preview."""
    return PreviewResponse(
        ok=preview.error is None,
        error=None if preview.error is None else describe_error(preview.error)[0],
        seconds=round(preview.seconds, 3),
        protocol_version=preview.protocol_version,
        server_info=dict(preview.server_info),
        capabilities=dict(preview.capabilities),
        instructions=preview.instructions,
        tools=[_build_tool_model(*each) for each in preview.tools],
        token_cost=preview.token_cost,
        set_aside=list(preview.set_aside),
        resources=[_build_resource_model(each, "uri") for each in preview.resources],
        resource_templates=[
            _build_resource_model(each, "uriTemplate") for each in preview.resource_templates
        ],
        prompts=[
            PreviewPrompt(name=_get_text(each, "name"), description=_get_text(each, "description"))
            for each in preview.prompts
        ],
    )


def _build_tool_model(definition: Definition, cost: int) -> PreviewTool:
    return PreviewTool(
        name=definition.name,
        title=definition.title,
        description=definition.description,
        annotations=dict(definition.annotations),
        input_schema=dict(definition.input_schema),
        token_cost=cost,
    )


def _build_resource_model(raw: Mapping[str, Any], uri_key: str) -> PreviewResource:
    return PreviewResource(
        uri=_get_text(raw, uri_key), name=_get_text(raw, "name"), description=_get_text(raw, "description")
    )


def _get_text(raw: Mapping[str, Any], key: str) -> str:
    """Return a string field, or an empty string if the server sent another type."""
    value = raw.get(key)
    return value if isinstance(value, str) else ""
