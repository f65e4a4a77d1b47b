"""Calls that a model asked for, made all at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from toolyard.model.result import Result
from toolyard.yard import Provider, Toolyard

__all__ = ["Call", "Scope", "error_text"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call as a model wrote it: its arguments should be an object, or one as JSON text."""

    id: str
    name: str
    arguments: object


@dataclass(frozen=True, slots=True)
class Scope:
    """A yard, and who uses it."""

    yard: Toolyard
    provider: Provider
    agent: str | None = None
    bundles: tuple[str, ...] = ()

    async def tools(self) -> list[dict[str, Any]]:
        """The tools as the provider wants them."""
        return await self.yard.tools(agent=self.agent, bundles=self.bundles, provider=self.provider)

    async def results(self, calls: Iterable[Call]) -> Sequence[tuple[Call, Result]]:
        """What each call came to, in their order. A failure is a result too."""
        wanted = list(calls)
        return list(zip(wanted, await asyncio.gather(*map(self._result, wanted)), strict=True))

    async def _result(self, call: Call) -> Result:
        try:
            arguments = _arguments(call.arguments)
        except ValueError as error:
            return Result(
                None, f"the arguments of {call.name} are {error}; nothing was called", is_error=True
            )
        return await self.yard.answer(
            call.name, arguments, agent=self.agent, bundles=self.bundles, provider=self.provider
        )


def error_text(result: Result) -> str:
    """What a model reads of a result, an error with its cause."""
    shown = result.for_model()
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _arguments(given: object) -> Mapping[str, Any]:
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except (ValueError, RecursionError):
            raise ValueError("no valid JSON") from None
    if not isinstance(given, Mapping):
        raise ValueError("no JSON object")
    return cast("Mapping[str, Any]", given)
