"""Concurrent execution of a model's tool calls, and conversion of results, shared by the adapters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

from toolyard.library import ProviderName, Toolyard
from toolyard.types.tool import Media, Result

__all__ = ["ModelToolCall", "ToolCaller", "normalize_mime_type", "result_text", "select_images"]

_SENDABLE_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that every provider accepts; any other type makes a provider reject the whole request."""


@dataclass(frozen=True, slots=True)
class ModelToolCall:
    """A tool call as written by a model. ``arguments`` should be an object or the JSON text of one."""

    id: str
    name: str
    arguments: object


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """Lists and calls the tools of a yard for one agent, set of bundles and model provider."""

    yard: Toolyard
    provider: ProviderName
    agent: str | None = None
    bundles: tuple[str, ...] = ()

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return tool definitions in the provider's format."""
        return await self.yard.tools(agent=self.agent, bundles=self.bundles, provider=self.provider)

    async def call_all(self, calls: Iterable[ModelToolCall]) -> Sequence[tuple[ModelToolCall, Result]]:
        """Run all calls concurrently, and return each with its result, in order. Failures are results."""
        call_list = list(calls)
        # gather() keeps the order of the calls, and answer() raises no error of a call: each call of the
        # model gets a result, as the provider APIs require.
        results = await asyncio.gather(*map(self._call_one, call_list))
        return list(zip(call_list, results, strict=True))

    async def _call_one(self, call: ModelToolCall) -> Result:
        try:
            arguments = _parse_arguments(call.arguments)
        except ValueError as error:
            return Result(
                None, f"The arguments of {call.name} are {error}. The tool was not called.", is_error=True
            )
        return await self.yard.answer(
            call.name, arguments, agent=self.agent, bundles=self.bundles, provider=self.provider
        )


def result_text(result: Result) -> str:
    """Return a result as text for a model; an error includes its cause."""
    value = result.for_model()
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def select_images(result: Result) -> Iterator[Media]:
    """Return the images of a result that can be sent to a model; its text describes the others."""
    images = (
        normalize_mime_type(media) for media in result.media if media.kind == "image" and media.handle is None
    )
    return (media for media in images if media.mime in _SENDABLE_IMAGE_TYPES)


def normalize_mime_type(media: Media) -> Media:
    """Return the media with its MIME type in lower case and without parameters, as providers expect it."""
    return replace(media, mime=media.mime.partition(";")[0].strip().lower())


def _parse_arguments(arguments: object) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}", parse_constant=_reject_constant)
        except (ValueError, RecursionError):
            raise ValueError("not valid JSON") from None
    if not isinstance(arguments, Mapping):
        raise ValueError("not a JSON object")
    return cast("Mapping[str, Any]", arguments)


def _reject_constant(constant: str) -> NoReturn:
    # Python's parser accepts NaN and Infinity, which are not JSON.
    raise ValueError(f"{constant} is not valid JSON")
