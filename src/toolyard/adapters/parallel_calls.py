"""Calls that a model asked for, made all at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

from toolyard.types.result import Media, Result
from toolyard.yard import ProviderName, Toolyard

__all__ = ["ModelToolCall", "ToolCaller", "normalize_mime_type", "result_text", "select_images"]

_SENDABLE_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What every provider takes; any other ends the whole request."""


@dataclass(frozen=True, slots=True)
class ModelToolCall:
    """One call as a model wrote it: its arguments should be an object, or one as JSON text."""

    id: str
    name: str
    arguments: object


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """A yard, and who uses it."""

    yard: Toolyard
    provider: ProviderName
    agent: str | None = None
    bundles: tuple[str, ...] = ()

    async def tools(self) -> list[dict[str, Any]]:
        """The tools as the provider wants them."""
        return await self.yard.tools(agent=self.agent, bundles=self.bundles, provider=self.provider)

    async def call_all(self, calls: Iterable[ModelToolCall]) -> Sequence[tuple[ModelToolCall, Result]]:
        """What each call came to, in their order. A failure is a result too."""
        wanted = list(calls)
        return list(zip(wanted, await asyncio.gather(*map(self._call_one, wanted)), strict=True))

    async def _call_one(self, call: ModelToolCall) -> Result:
        try:
            arguments = _parse_arguments(call.arguments)
        except ValueError as error:
            return Result(
                None, f"the arguments of {call.name} are {error}; nothing was called", is_error=True
            )
        return await self.yard.answer(
            call.name, arguments, agent=self.agent, bundles=self.bundles, provider=self.provider
        )


def result_text(result: Result) -> str:
    """What a model reads of a result, an error with its cause."""
    shown = result.for_model()
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def select_images(result: Result) -> Iterator[Media]:
    """The pictures that can be sent along; of the others the text says what they are."""
    shown = (
        normalize_mime_type(media) for media in result.media if media.kind == "image" and media.handle is None
    )
    return (media for media in shown if media.mime in _SENDABLE_IMAGE_TYPES)


def normalize_mime_type(media: Media) -> Media:
    """The same with its type as providers write it: in small letters, without parameters."""
    return replace(media, mime=media.mime.partition(";")[0].strip().lower())


def _parse_arguments(given: object) -> Mapping[str, Any]:
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}", parse_constant=_reject_constant)
        except (ValueError, RecursionError):
            raise ValueError("no valid JSON") from None
    if not isinstance(given, Mapping):
        raise ValueError("no JSON object")
    return cast("Mapping[str, Any]", given)


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
