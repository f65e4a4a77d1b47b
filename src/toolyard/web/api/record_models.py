"""Request and response models of records, made from their fields.

A request has the fields of the record's draft. A response has the fields that ``FieldSpec.shown_to`` allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, is_dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Field, create_model

from toolyard.types.registry import Audience, ChoiceDraft, RecordField, record_fields
from toolyard.web.api import base as api

__all__ = ["changed_values", "draft_values", "output_values", "request_model", "response_model"]


def request_model(
    record: type[Any], *, partial: bool = False, without: str = "", **models: type[BaseModel]
) -> type[api.RequestModel]:
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
    return create_model(f"{record.__name__}Input", __base__=api.RequestModel, **fields)


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


def changed_values(changes: BaseModel, record: type[Any]) -> dict[str, Any]:
    """Return the fields that a partial model changes, as a draft has them.

    Null removes an optional value. For other fields it means no change.
    """
    fields = {each.name: each for each in record_fields(record) if each.settable}
    values = draft_values(changes.model_dump(exclude_unset=True, include=set(fields)))
    return {name: value for name, value in values.items() if value is not None or fields[name].optional}


def draft_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a request model as a draft has them."""
    return {
        name: tuple(map(_draft_entry, cast("list[Any]", value))) if isinstance(value, list) else value
        for name, value in values.items()
    }


def _draft_entry(entry: Any) -> Any:
    return ChoiceDraft(**draft_values(cast("dict[str, Any]", entry))) if isinstance(entry, dict) else entry


def response_model(record: type[Any], **models: type[BaseModel]) -> type[api.ApiModel]:
    """Return a model with the fields of a record that the API shows; ``models`` are those of list entries."""
    fields: dict[str, Any] = {
        _output_name(each): (
            _output_type(each, models.get(each.name)),
            Field(description=None if each.spec.secret else _describe(each)),
        )
        for each in _output_fields(record)
    }
    return create_model(f"{record.__name__}Output", __base__=api.ApiModel, **fields)


def _output_type(record_field: RecordField, model: type[BaseModel] | None) -> Any:
    if record_field.spec.secret:
        return bool
    output_type: Any = record_field.type
    if record_field.allowed_values:
        output_type = cast("Any", Literal[record_field.allowed_values])
    elif record_field.item_type is not None:
        output_type = list[model or record_field.item_type]
    elif record_field.type is float and not record_field.settable:
        # A time; numbers that people set are not.
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
    return value


def _output_fields(record: type[Any]) -> list[RecordField]:
    shown = [each for each in record_fields(record) if each.spec.shown_to is not Audience.NOBODY]
    return sorted(shown, key=lambda each: each.name != "id")


def _output_name(record_field: RecordField) -> str:
    return f"has_{record_field.name}" if record_field.spec.secret else record_field.name
