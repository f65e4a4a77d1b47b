"""What the embedding program can do for servers that ask: fill in a form, run a model, name folders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["INPUT_NAME", "Answerer", "Callbacks", "NotOffered"]

INPUT_NAME = "toolyard/inputName"
"""The key in ``_meta`` of a legacy question that says what it is called in the modern era. Those who carry
questions from one era to the other and back lose nothing by it."""

Answerer: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Takes the server's id and the parameters of its request, gives the result."""


class NotOffered(Exception):
    """A server asks for something that it was not offered."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Offered to servers only where given. An exception becomes an error that the server sees."""

    elicitation: Answerer | None = None
    """Asks the person. Result: ``{"action": "accept" | "decline" | "cancel", "content": {…}}``."""
    elicitation_urls: bool = False
    """The person can also be sent to a URL."""
    sampling: Answerer | None = None
    """Runs a model."""
    roots: Answerer | None = None
    """Names the folders that servers may work in. Result: ``{"roots": [{"uri": …}]}``."""
    log: Callable[[str, Mapping[str, Any]], None] | None = None
    """Told each log message of a server."""
    notification: Callable[[str, str, Mapping[str, Any]], None] | None = None
    """Told each other notification: the server's id, the method, the parameters."""
    offers: Mapping[str, Any] | None = None
    """What servers are told in place of what follows from the rest, for whoever speaks for somebody else."""
    name_inputs: bool = False
    """Whether ``_meta`` of a question says under which name (``INPUT_NAME``) a modern server asks it."""

    def capabilities(self) -> dict[str, Any]:
        """What servers are told that we can do: what was given, and nothing else."""
        if self.offers is not None:
            return dict(self.offers)
        offered: dict[str, Any] = {}
        if self.elicitation is not None:
            offered["elicitation"] = {"form": {}, "url": {}} if self.elicitation_urls else {"form": {}}
        if self.sampling is not None:
            offered["sampling"] = {}
        if self.roots is not None:
            offered["roots"] = {}
        return offered

    async def answer(self, server: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a server's request. Raises NotOffered for what was not offered."""
        answerer = {
            "elicitation/create": self.elicitation,
            "sampling/createMessage": self.sampling,
            "roots/list": self.roots,
        }.get(method)
        if answerer is None:
            raise NotOffered(method)
        return dict(await answerer(server, params))
