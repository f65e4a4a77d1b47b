"""Request and response models of records, made from their fields, and those of servers and instances.

A request has the fields of the record's draft. A response has the fields that ``FieldSpec.shown_to`` allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, is_dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, create_model

from toolyard.registry.issuer_confirmation import ClientIssuer
from toolyard.types.registry import (
    Audience,
    AuthChoice,
    ChoiceDraft,
    Instance,
    InstanceDraft,
    RecordField,
    RegistryServer,
    ServerDraft,
    record_fields,
)
from toolyard.web.api.dependencies import ApiModel, RequestModel, to_datetime
from toolyard.web.api.previews import PreviewResponse
from toolyard.web.api.status import ServerStatus

__all__ = [
    "ConfirmIssuerRequest",
    "CreateInstanceRequest",
    "CreateServerRequest",
    "InstanceList",
    "InstanceResponse",
    "IssuerList",
    "ServerList",
    "ServerResponse",
    "UpdateInstanceRequest",
    "UpdateServerRequest",
    "draft_values",
    "issuer_list",
    "output_values",
    "request_model",
    "response_model",
]


# Models of records.


def request_model(
    record: type[Any], *, partial: bool = False, without: str = "", **models: type[BaseModel]
) -> type[RequestModel]:
    """Return a model with the settable fields of a record; ``models`` are models of list entries.

    In a partial model, all fields may be omitted.
    """
    fields: dict[str, Any] = {}
    for each in record_fields(record):
        if not each.settable or each.name == without:
            continue
        input_type = _list_type(models[each.name], each) if each.name in models else _input_type(each)
        options: dict[str, Any] = {"description": _describe(each) if partial else each.spec.description}
        if partial or each.default is None:
            input_type, options["default"] = input_type | None, None
        elif each.item_type is not None:
            options["default_factory"] = list[Any]
        elif each.default is not MISSING and (each.default or not each.spec.not_empty):
            options["default"] = each.default
        fields[each.name] = (input_type, Field(**options))
    return create_model(f"{record.__name__}Input", __base__=RequestModel, **fields)


def _describe(record_field: RecordField) -> str | None:
    """Return the description of a field, unless it is about the value that a new record gets for null."""
    is_about_null = record_field.default is None and not record_field.optional
    return None if is_about_null else record_field.spec.description


def _input_type(record_field: RecordField) -> Any:
    """Return the type of a field with the limits that the API publishes."""
    spec, item_type = record_field.spec, record_field.item_type
    if record_field.allowed_values:
        return Literal[record_field.allowed_values]
    input_type = item_type or record_field.type
    if spec.rule is not None and (spec.not_empty or item_type is None):
        # The pattern is only documented. The registry checks it, with better messages.
        has_pattern = spec.not_empty and spec.rule.pattern
        limits = Field(
            min_length=1 if spec.not_empty else None,
            max_length=spec.rule.max_characters,
            examples=None if spec.example is None else [spec.example],
            json_schema_extra={"pattern": spec.rule.pattern} if has_pattern else None,
        )
        input_type = Annotated[input_type, limits]
    return input_type if item_type is None else _list_type(input_type, record_field)


def _list_type(item_type: Any, record_field: RecordField) -> Any:
    spec = record_field.spec
    extra: Any = None if spec.min_entries is None else {"minItems": spec.min_entries}
    return Annotated[list[item_type], Field(max_length=spec.max_entries, json_schema_extra=extra)]


def draft_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a request model as a draft has them."""
    return {
        name: tuple(map(_draft_entry, cast("list[Any]", value))) if isinstance(value, list) else value
        for name, value in values.items()
    }


def _draft_entry(entry: Any) -> Any:
    return ChoiceDraft(**draft_values(cast("dict[str, Any]", entry))) if isinstance(entry, dict) else entry


def response_model(record: type[Any], **models: type[BaseModel]) -> type[ApiModel]:
    """Return a model with the fields of a record that the API shows; ``models`` are those of list entries."""
    fields: dict[str, Any] = {
        _output_name(each): (
            _output_type(each, models.get(each.name)),
            Field(description=None if each.spec.secret else _describe(each)),
        )
        for each in _output_fields(record)
    }
    return create_model(f"{record.__name__}Output", __base__=ApiModel, **fields)


def _output_type(record_field: RecordField, model: type[BaseModel] | None) -> Any:
    if record_field.spec.secret:
        return bool
    output_type: Any = record_field.type
    if record_field.allowed_values:
        output_type = cast("Any", Literal[record_field.allowed_values])
    elif record_field.item_type is not None:
        output_type = list[model or record_field.item_type]
    elif _is_time(record_field):
        output_type = datetime
    is_nullable = record_field.optional or record_field.spec.shown_to is Audience.ADMINS
    return output_type | None if is_nullable else output_type


def output_values(record: object, *, is_admin: bool) -> dict[str, Any]:
    """Return the fields of a record that the API shows to an admin or to another user."""
    return {
        _output_name(each): _output_value(each, getattr(record, each.name), is_admin=is_admin)
        for each in _output_fields(type(record))
    }


def _output_value(record_field: RecordField, value: Any, *, is_admin: bool) -> Any:
    if record_field.spec.secret:
        return value is not None
    if value is None or (record_field.spec.shown_to is Audience.ADMINS and not is_admin):
        return None
    if record_field.item_type is not None:
        return [output_values(each, is_admin=is_admin) if is_dataclass(each) else each for each in value]
    return to_datetime(value) if _is_time(record_field) else value


def _is_time(record_field: RecordField) -> bool:
    """Return whether a field is a time; numbers that people set are not."""
    return record_field.type is float and not record_field.settable


def _output_fields(record: type[Any]) -> list[RecordField]:
    shown = [each for each in record_fields(record) if each.spec.shown_to is not Audience.NOBODY]
    return sorted(shown, key=lambda each: each.name != "id")


def _output_name(record_field: RecordField) -> str:
    return f"has_{record_field.name}" if record_field.spec.secret else record_field.name


# Servers.


class ChoiceRequest(request_model(AuthChoice), schema="ChoiceGiven"):
    """A sign-in choice of a server."""


class CreateServerRequest(request_model(RegistryServer, choices=ChoiceRequest), schema="ServerGiven"):
    """A server to add."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "GitHub",
                    "url": "https://api.githubcopilot.com/mcp/",
                    "choices": [{"kind": "oauth", "registration": "dynamic"}],
                }
            ]
        }
    )

    def draft(self) -> ServerDraft:
        """Return the input of the registry."""
        return ServerDraft(**draft_values(self.model_dump()))


class UpdateServerRequest(
    request_model(RegistryServer, partial=True, choices=ChoiceRequest), schema="ServerChanges"
):
    """Changes to a server; omitted fields stay unchanged. Choices that are not in `choices` are deleted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"description": "Our own repositories"}]})

    def draft(self, old: RegistryServer) -> ServerDraft:
        """Return the input of the registry: the old server with the changes applied."""
        # Null removes the list of allowed tools; for other fields it means no change.
        removable = {each.name for each in record_fields(RegistryServer) if each.optional}
        changes = self.model_dump(exclude_unset=True).items()
        changes = {name: value for name, value in changes if value is not None or name in removable}
        return replace(old.to_draft(), **draft_values(changes))


class ConfirmIssuerRequest(RequestModel, schema="IssuerGiven"):
    """Confirmation of the issuer of a sign-in choice."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"choice_id": "5f0c1d2e3a4b5c6d", "issuer": "https://login.example.com"}]
        }
    )

    choice_id: str = Field(min_length=1, max_length=128, description="Sign-in choice with the client secret.")
    issuer: str = Field(
        min_length=1,
        max_length=2048,
        examples=["https://login.example.com"],
        description="Issuer that the server reports. It is compared with the issuer reported now.",
    )


class IssuerResponse(ApiModel, schema="IssuerShown"):
    """Unconfirmed issuer that a server reports for a client secret."""

    choice_id: str
    issuer: str | None = Field(description="Issuer; null if it was not found, see `error`.")
    error: str | None = Field(description="Reason why it was not found.")


class IssuerList(BaseModel):
    """Issuers to confirm, one for each sign-in choice."""

    items: list[IssuerResponse]


class ChoiceResponse(response_model(AuthChoice), schema="ChoiceShown"):
    """A sign-in choice of a server."""


class ServerResponse(response_model(RegistryServer, choices=ChoiceResponse), schema="ServerShown"):
    """A registry server."""

    instance_count: int | None = Field(description="Number of instances of all users. Shown to admins only.")
    preview: PreviewResponse | None = Field(
        default=None, description="Contents of the server, if requested with `preview=true`."
    )


class ServerList(BaseModel):
    """All registry servers, sorted by name."""

    items: list[ServerResponse]


def issuer_list(issuers: Sequence[ClientIssuer]) -> IssuerList:
    """Return the response model of unconfirmed issuers."""
    return IssuerList(
        items=[
            IssuerResponse(
                choice_id=each.choice.id,
                issuer=each.issuer or None,
                error=None if each.error is None else each.error.cause,
            )
            for each in issuers
            if each.choice is not None
        ]
    )


# Instances.


class CreateInstanceRequest(request_model(Instance), schema="InstanceGiven"):
    """An instance to create."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"server_id": "0f3c9a1b2d4e5f60", "slug": "github-work", "name": "GitHub, at work"}]
        }
    )

    def draft(self) -> InstanceDraft:
        """Return the input of the registry."""
        return InstanceDraft(**draft_values(self.model_dump()))


class UpdateInstanceRequest(
    request_model(Instance, partial=True, without="server_id"), schema="InstanceChanges"
):
    """Changes to an instance; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tool_filter": ["search", "get_issue"]}]})

    def draft(self, old: Instance) -> InstanceDraft:
        """Return the input of the registry, in which None keeps the value, except that of the tool filter."""
        unchanged = InstanceDraft(old.server_id, tool_filter=old.tool_filter)
        return replace(unchanged, **draft_values(self.model_dump(exclude_unset=True)))


class InstanceResponse(response_model(Instance), schema="InstanceShown"):
    """An instance and its status."""

    server_name: str
    auth: Literal["public", "header", "oauth"] | None = Field(
        description="Kind of sign-in; null if the server no longer offers it."
    )
    status: ServerStatus


class InstanceList(BaseModel):
    """Your instances, sorted by slug."""

    items: list[InstanceResponse]
