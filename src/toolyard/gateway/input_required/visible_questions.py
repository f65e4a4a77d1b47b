"""Questions from servers, made safe to read before a client shows them to a person."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from toolyard.agents.chat.server_request_parsing import is_private_page, normalize_web_url
from toolyard.errors import BadAnswer
from toolyard.results.json_size import estimate_characters
from toolyard.types.json_values import object_or_empty
from toolyard.types.server import Server
from toolyard.types.visible_text import visible

__all__ = [
    "check_elicitation",
    "check_input_requests",
    "check_question",
    "escape_hidden_in_params",
    "escape_hidden_in_requests",
]

_ELICITATION_METHOD = "elicitation/create"
_SAMPLING_METHOD = "sampling/createMessage"
_TEXT_KEYS = ("title", "description", "enumNames")
_OPTION_KEYS = frozenset({"oneOf", "anyOf", "items"})
"""Keys of the choices of a field, whose titles clients show."""
_MAX_FIELD_DEPTH = 3
_SAMPLING_KEYS = frozenset({"systemPrompt", "messages", "tools"})
"""Keys of a sampling request whose texts clients show, or models read."""
_MAX_ELICITATION_CHARACTERS = 100_000
_THREAD_MIN_CHARACTERS = 50_000
"""Length of questions from which on their texts are escaped in a thread."""


def check_elicitation(server: Server | None, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a server's elicitation, with the host of its URL as browsers resolve it.

    Raises BadAnswer if nobody should be asked, by the rules of chats.
    """
    if estimate_characters(params, _MAX_ELICITATION_CHARACTERS) > _MAX_ELICITATION_CHARACTERS:
        raise BadAnswer(f"asked a question of more than {_MAX_ELICITATION_CHARACTERS:,} characters")
    if params.get("mode", "form") != "url":
        return dict(params)
    url = normalize_web_url(str(params.get("url")))
    if url is None:
        raise BadAnswer("asked to open an address that is not http(s), or that contains a user name")
    if is_private_page(server, url):
        raise BadAnswer(
            "asked to open a page at a private address",
            hint="allow private addresses for this server (privateAddresses) if you trust it",
        )
    return {**params, "url": url}


def check_question(server: Server | None, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a server's question; those of an elicitation are checked."""
    return check_elicitation(server, params) if method == _ELICITATION_METHOD else params


def check_input_requests(server: Server | None, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a modern server, with the elicitations of an ``input_required`` one checked."""
    if result.get("resultType") != "input_required":
        return result
    checked = {
        name: {**members, "params": check_elicitation(server, object_or_empty(members.get("params")))}
        for name, each in object_or_empty(result.get("inputRequests")).items()
        if (members := object_or_empty(each)).get("method") == _ELICITATION_METHOD
    }
    return {**result, "inputRequests": {**result["inputRequests"], **checked}} if checked else result


async def escape_hidden_in_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a question; hidden characters in the texts that clients show are escaped."""
    if estimate_characters(params, _THREAD_MIN_CHARACTERS) > _THREAD_MIN_CHARACTERS:
        return await asyncio.to_thread(_escape_params, method, params)
    return _escape_params(method, params)


async def escape_hidden_in_requests(result: dict[str, Any]) -> dict[str, Any]:
    """Return an ``input_required`` result with the same done to each of its questions."""
    requests = object_or_empty(result.get("inputRequests"))
    requests = {name: await _escape_request(each) for name, each in requests.items()}
    return {**result, "inputRequests": requests} if requests else result


async def _escape_request(request: Any) -> Any:
    members = object_or_empty(request)
    method = members.get("method")
    if method not in (_ELICITATION_METHOD, _SAMPLING_METHOD):
        return request
    return {
        **members,
        "params": await escape_hidden_in_params(method, object_or_empty(members.get("params"))),
    }


def _escape_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    if method == _ELICITATION_METHOD:
        return _escape_elicitation(params)
    return _escape_sampling(params) if method == _SAMPLING_METHOD else dict(params)


def _escape_elicitation(params: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(params)
    if isinstance(shown.get("message"), str):
        shown["message"] = visible(shown["message"])
    schema = object_or_empty(shown.get("requestedSchema"))
    fields = object_or_empty(schema.get("properties"))
    if fields:
        named = {name: _escape_field(_with_visible_title(name, field)) for name, field in fields.items()}
        shown["requestedSchema"] = {**_escape_field(schema), "properties": named}
    return shown


def _escape_sampling(params: Mapping[str, Any]) -> dict[str, Any]:
    """Escape the texts for the model, too: the person approves what the client shows."""
    return {**params, **{key: _escape_value(params[key]) for key in _SAMPLING_KEYS & params.keys()}}


def _escape_value(value: Any) -> Any:
    """Return a copy of a JSON value with all texts and names in it escaped, at any depth."""
    copies = [value]
    waiting: list[Any] = [copies]
    while waiting:
        container = waiting.pop()
        for key in list(object_or_empty(container) or range(len(container))):
            container[key] = each = _escape_outermost(container[key])
            if type(each) in (dict, list):
                waiting.append(each)
    return copies[0]


def _escape_outermost(value: Any) -> Any:
    if isinstance(value, list):
        return list(cast("list[Any]", value))
    if isinstance(value, dict):
        return {visible(name): each for name, each in cast("dict[str, Any]", value).items()}
    return visible(value) if isinstance(value, str) else value


def _with_visible_title(name: str, field: Any) -> Any:
    """Return the field with a title if clients would show its name, and that has hidden characters."""
    members = object_or_empty(field)
    return {"title": name, **members} if visible(name) != name else field


def _escape_field(field: Any, depth: int = 0) -> Any:
    """Return a field with its texts escaped. Values stay as they are, because the server expects them."""
    members = object_or_empty(field)
    texts = {key: _escape_text(members[key]) for key in _TEXT_KEYS if key in members}
    values = members.get("enum")
    if isinstance(values, list) and "enumNames" not in members:
        names = [_escape_text(each) for each in cast("list[Any]", values)]
        if names != values:
            texts["enumNames"] = names
    if depth < _MAX_FIELD_DEPTH:
        for key in _OPTION_KEYS & members.keys():
            options = members[key]
            texts[key] = (
                [_escape_option(each, depth + 1) for each in cast("list[Any]", options)]
                if isinstance(options, list)
                else _escape_field(options, depth + 1)
            )
    return {**members, **texts} if texts else field


def _escape_option(option: Any, depth: int) -> Any:
    constant = object_or_empty(option).get("const")
    named = _with_visible_title(constant, option) if isinstance(constant, str) else option
    return _escape_field(named, depth)


def _escape_text(text: Any) -> Any:
    if isinstance(text, list):
        return [_escape_text(each) for each in cast("list[Any]", text)]
    return visible(text) if isinstance(text, str) else text
