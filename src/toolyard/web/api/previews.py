"""What a server has, as the API shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from toolyard.types.tool import Definition
from toolyard.web.problem_details import ProblemDetails, describe_error
from toolyard.web.server_preview import ServerPreview

__all__ = ["PreviewShown", "PreviewTool", "build_preview_model"]


class PreviewTool(BaseModel):
    """A tool as its server publishes it."""

    name: str = Field(description="The server's own name for it.")
    title: str | None
    description: str
    annotations: dict[str, Any]
    input_schema: dict[str, Any]
    token_cost: int = Field(description="What its definition costs a model, in tokens, estimated.")


class PreviewResource(BaseModel):
    """A resource, or a template of resources."""

    uri: str
    name: str
    description: str


class PreviewPrompt(BaseModel):
    """A prompt."""

    name: str
    description: str


class PreviewShown(BaseModel):
    """What a server has, as far as it told."""

    ok: bool
    error: ProblemDetails | None = Field(description="Why it could not be told, in full.")
    seconds: float
    protocol_version: str | None
    server_info: dict[str, Any]
    capabilities: dict[str, Any]
    instructions: str | None
    tools: list[PreviewTool]
    token_cost: int
    set_aside: list[str] = Field(description="Tools that cannot be used, and why.")
    resources: list[PreviewResource]
    resource_templates: list[PreviewResource]
    prompts: list[PreviewPrompt]


def build_preview_model(found: ServerPreview) -> PreviewShown:
    """A preview as the API shows it."""
    return PreviewShown(
        ok=found.error is None,
        error=None if found.error is None else describe_error(found.error)[0],
        seconds=round(found.seconds, 3),
        protocol_version=found.protocol_version,
        server_info=dict(found.server_info),
        capabilities=dict(found.capabilities),
        instructions=found.instructions,
        tools=[_build_tool_model(*each) for each in found.tools],
        token_cost=found.token_cost,
        set_aside=list(found.set_aside),
        resources=[_build_resource_model(each, "uri") for each in found.resources],
        resource_templates=[_build_resource_model(each, "uriTemplate") for each in found.resource_templates],
        prompts=[
            PreviewPrompt(name=_get_text(each, "name"), description=_get_text(each, "description"))
            for each in found.prompts
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


def _build_resource_model(raw: Mapping[str, Any], place: str) -> PreviewResource:
    return PreviewResource(
        uri=_get_text(raw, place), name=_get_text(raw, "name"), description=_get_text(raw, "description")
    )


def _get_text(raw: Mapping[str, Any], key: str) -> str:
    """Whatever a server put there is borne."""
    value = raw.get(key)
    return value if isinstance(value, str) else ""
