"""Tools for pydantic-ai: a toolset that any of its agents takes."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from toolyard.adapters.parallel_calls import normalize_mime_type, result_text, select_images
from toolyard.types.result import Media
from toolyard.yard import ProviderName, Toolyard

try:
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.messages import BinaryContent
    from pydantic_ai.tools import RunContext, ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as error:
    raise ImportError(
        "toolyard.adapters.pydantic_ai needs the pydantic-ai library: pip install 'toolyard[pydantic-ai]'"
    ) from error

__all__ = ["YardToolset"]

_ANY_OBJECT_VALIDATOR = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
"""Arguments go to the server as they are, and what it says about them goes to the model."""
_ANTHROPIC_NAME_PARTS = ("anthropic", "claude")
"""Whose API refuses a whole request because of a parameter's name. Gateways and fallbacks name them, too."""


class YardToolset(AbstractToolset[Any]):
    """``Agent(model, toolsets=[YardToolset(yard)])``: what the yard shows, called through its one call path.

    The yard stays the caller's: it must be open while the agent runs, and is not closed with it.
    """

    def __init__(
        self, yard: Toolyard, *, agent: str | None = None, bundles: Iterable[str] = (), id: str | None = None
    ) -> None:
        self._yard = yard
        self._agent = agent
        self._bundles = tuple(bundles)
        self._id = id

    @property
    def id(self) -> str | None:
        """What durable execution knows it by."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools that the yard shows now, asked anew for each step."""
        form = _select_provider(ctx)
        shown = await self._yard.tools(agent=self._agent, bundles=self._bundles, provider=form)
        made = (self._build_toolset_tool(tool, form, ctx.max_retries) for tool in shown)
        return {tool.tool_def.name: tool for tool in made}

    def _build_toolset_tool(
        self, tool: dict[str, Any], provider: ProviderName, max_retries: int
    ) -> ToolsetTool[Any]:
        body: dict[str, Any] = tool if provider == "anthropic" else tool["function"]
        definition = ToolDefinition(
            name=body["name"],
            description=body["description"],
            parameters_json_schema=body["input_schema" if provider == "anthropic" else "parameters"],
        )
        return ToolsetTool(
            toolset=self, tool_def=definition, max_retries=max_retries, args_validator=_ANY_OBJECT_VALIDATOR
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """The text for the model, with pictures and sounds beside it. Raises ToolFailed, with the error."""
        result = await self._yard.answer(
            name, tool_args, agent=self._agent, bundles=self._bundles, provider=_select_provider(ctx)
        )
        if result.is_error:
            raise ToolFailed(result_text(result))
        sounds = (
            normalize_mime_type(each) for each in result.media if each.kind == "audio" and each.handle is None
        )
        media = [_to_binary_content(each) for each in (*select_images(result), *sounds)]
        return [result.text, *media] if media else result.text


def _select_provider(ctx: RunContext[Any]) -> ProviderName:
    """The form that has all which the model's API takes; pydantic-ai makes of it what each provider wants."""
    named = f"{ctx.model.system} {ctx.model.model_name}".lower()
    return "anthropic" if any(word in named for word in _ANTHROPIC_NAME_PARTS) else "openai"


def _to_binary_content(media: Media) -> BinaryContent:
    return BinaryContent(base64.b64decode(media.data), media_type=media.mime)
