"""Questions of servers, made safe to read before a client shows them to a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolyard.gateway.client_request import as_object
from toolyard.types.visible_text import visible

__all__ = ["visible_params", "visible_requests"]

_ELICIT = "elicitation/create"
_TEXTS = ("title", "description", "enumNames")


def visible_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a question; hidden characters in the texts of an elicitation are escaped."""
    if method != _ELICIT:
        return dict(params)
    shown = dict(params)
    if isinstance(shown.get("message"), str):
        shown["message"] = visible(shown["message"])
    schema = as_object(shown.get("requestedSchema"))
    fields = as_object(schema.get("properties"))
    if fields:
        named = {name: _visible_field(field) for name, field in fields.items()}
        shown["requestedSchema"] = {**schema, "properties": named}
    return shown


def visible_requests(result: dict[str, Any]) -> dict[str, Any]:
    """Return an ``input_required`` result with the same done to each of its questions."""
    requests = {name: _visible_request(each) for name, each in as_object(result.get("inputRequests")).items()}
    return {**result, "inputRequests": requests} if requests else result


def _visible_request(request: Any) -> Any:
    members = as_object(request)
    if members.get("method") != _ELICIT:
        return request
    return {**members, "params": visible_params(_ELICIT, as_object(members.get("params")))}


def _visible_field(field: Any) -> Any:
    members = as_object(field)
    texts = {key: _visible(members[key]) for key in _TEXTS if key in members}
    return {**members, **texts} if texts else field


def _visible(text: Any) -> Any:
    if isinstance(text, list):
        return [_visible(each) for each in cast("list[Any]", text)]
    return visible(text) if isinstance(text, str) else text
