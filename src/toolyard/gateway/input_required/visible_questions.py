"""Questions of servers, made safe to read before a client shows them to a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolyard.gateway.client_request import as_object
from toolyard.types.visible_text import visible

__all__ = ["escape_hidden_in_params", "escape_hidden_in_requests"]

_ELICITATION_METHOD = "elicitation/create"
_TEXT_KEYS = ("title", "description", "enumNames")


def escape_hidden_in_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a question; hidden characters in the texts of an elicitation are escaped."""
    if method != _ELICITATION_METHOD:
        return dict(params)
    shown = dict(params)
    if isinstance(shown.get("message"), str):
        shown["message"] = visible(shown["message"])
    schema = as_object(shown.get("requestedSchema"))
    fields = as_object(schema.get("properties"))
    if fields:
        named = {name: _escape_field(field) for name, field in fields.items()}
        shown["requestedSchema"] = {**schema, "properties": named}
    return shown


def escape_hidden_in_requests(result: dict[str, Any]) -> dict[str, Any]:
    """Return an ``input_required`` result with the same done to each of its questions."""
    requests = {name: _escape_request(each) for name, each in as_object(result.get("inputRequests")).items()}
    return {**result, "inputRequests": requests} if requests else result


def _escape_request(request: Any) -> Any:
    members = as_object(request)
    if members.get("method") != _ELICITATION_METHOD:
        return request
    return {
        **members,
        "params": escape_hidden_in_params(_ELICITATION_METHOD, as_object(members.get("params"))),
    }


def _escape_field(field: Any) -> Any:
    members = as_object(field)
    texts = {key: _escape_text(members[key]) for key in _TEXT_KEYS if key in members}
    return {**members, **texts} if texts else field


def _escape_text(text: Any) -> Any:
    if isinstance(text, list):
        return [_escape_text(each) for each in cast("list[Any]", text)]
    return visible(text) if isinstance(text, str) else text
