"""Adapter for pydantic-ai: a toolset for its agents."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from toolyard.adapters.parallel_calls import normalize_mime_type, result_text, select_images
from toolyard.library import ProviderName, Toolyard
from toolyard.types.tool import Media

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
"""Accepts any object: the server validates the arguments, and its error message is sent to the model."""
_ANTHROPIC_NAME_PARTS = ("anthropic", "claude")
"""Parts of provider and model names that mean Anthropic's API, also behind gateways and fallback models.

That API rejects a whole request because of one parameter's name, so its own tool format is needed."""


class YardToolset(AbstractToolset[Any]):
    """Toolset with the visible tools of a yard: ``Agent(model, toolsets=[YardToolset(yard)])``.

    The yard must be open while the agent runs; the toolset does not close it.
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
        """The id of the toolset, used by durable execution."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools that are visible now; pydantic-ai calls this before each step."""
        provider = _select_provider(ctx)
        definitions = await self._yard.tools(agent=self._agent, bundles=self._bundles, provider=provider)
        tools = (self._build_toolset_tool(tool, provider, ctx.max_retries) for tool in definitions)
        return {tool.tool_def.name: tool for tool in tools}

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
        """Call a tool, and return its text, images and audio. Raises ToolFailed with the text of an error."""
        # answer() instead of call(): the model should see the error and its hint, and go on.
        result = await self._yard.answer(
            name, tool_args, agent=self._agent, bundles=self._bundles, provider=_select_provider(ctx)
        )
        if result.is_error:
            raise ToolFailed(result_text(result))
        audio = (
            normalize_mime_type(item) for item in result.media if item.kind == "audio" and item.handle is None
        )
        media = [_to_binary_content(item) for item in (*select_images(result), *audio)]
        return [result.text, *media] if media else result.text


def _select_provider(ctx: RunContext[Any]) -> ProviderName:
    """Return the tool format with schemas that the model's API accepts.

    pydantic-ai converts tool definitions for each provider, so only differences that it cannot convert count.
    """
    model_name = f"{ctx.model.system} {ctx.model.model_name}".lower()
    return "anthropic" if any(part in model_name for part in _ANTHROPIC_NAME_PARTS) else "openai"


def _to_binary_content(media: Media) -> BinaryContent:
    return BinaryContent(base64.b64decode(media.data), media_type=media.mime)
