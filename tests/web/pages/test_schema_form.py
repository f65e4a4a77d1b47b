"""Forms from schemas: a field for everything, JSON that means what was typed, and nothing typed is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolyard.catalog.schemas.form_fields import SchemaField, read_schema_fields
from toolyard.web.ui.components.forms import SubmittedForm
from toolyard.web.ui.tools.schema_form import (
    BadArguments,
    ToolForm,
    apply_edit_button,
    build_field_labels,
    build_form_fields,
    build_form_texts,
    read_form,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["need", "flag"],
    "properties": {
        "opt": {"type": ["integer", "null"], "default": 3},
        "need": {"$ref": "#/$defs/text"},
        "flag": {"type": "boolean"},
        "pick": {"anyOf": [{"enum": ["a", 1, None]}, {"type": "null"}]},
        "list": {"type": "array", "items": {"type": "string"}},
        "num": {"type": "number"},
        "body": {"type": "string"},
        "free": {"type": "object", "additionalProperties": True},
    },
    "$defs": {"text": {"type": "string", "description": "A text"}},
}
TRIP: dict[str, Any] = {
    "type": "object",
    "required": ["to", "travellers"],
    "properties": {
        "to": {
            "type": "object",
            "required": ["city"],
            "properties": {
                "city": {"type": "string"},
                "country": {"type": "string", "enum": ["NO", "SE"], "default": "NO"},
            },
        },
        "travellers": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            },
        },
        "by": {
            "oneOf": [
                {
                    "title": "Train",
                    "type": "object",
                    "required": ["kind", "seat"],
                    "properties": {"kind": {"const": "train"}, "seat": {"enum": ["window", "aisle"]}},
                },
                {
                    "type": "object",
                    "required": ["kind"],
                    "properties": {"kind": {"const": "boat"}, "cabin": {"type": "boolean"}},
                },
            ]
        },
        "tags": {"type": "array", "items": {"enum": ["work", "fun"]}},
        "note": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    },
}


def fields_by_name(fields: tuple[SchemaField, ...]) -> dict[str, SchemaField]:
    return {each.name: each for each in fields}


def wrong(form: ToolForm) -> set[str]:
    """The fields that have an error; where none has, there is JSON."""
    try:
        json.dumps(form.arguments())
    except BadArguments as error:
        return set(error.errors)
    return set()


# Fields.


def test_fields_come_from_the_schema_the_required_first() -> None:
    fields = read_schema_fields(SCHEMA)
    assert [(each.name, each.kind, each.required) for each in fields] == [
        ("need", "text", True),
        ("flag", "flag", True),
        ("opt", "integer", False),
        ("pick", "choice", False),
        ("list", "list", False),
        ("num", "number", False),
        ("body", "long", False),
        ("free", "json", False),
    ]
    assert fields[0].help == "A text"
    assert fields[2].default == 3
    assert [each.json for each in fields[3].options] == ['"a"', "1", "null"]


def test_nested_objects_have_their_own_fields() -> None:
    fields = fields_by_name(read_schema_fields(TRIP))
    assert [each.name for each in fields["to"].fields] == ["city", "country"]
    travellers = fields["travellers"]
    assert travellers.kind == "list"
    assert travellers.item is not None
    assert [each.name for each in travellers.item.fields] == ["name", "age"]
    assert [each.title for each in fields["by"].variants] == ["Train", "boat"]
    assert fields["by"].variants[0].fields[0].kind == "fixed"
    assert fields["tags"].kind == "several"
    assert [each.title for each in fields["note"].variants] == ["Text", "List"]


def test_choices_have_the_names_that_the_schema_gives_them() -> None:
    titled_schema = {"oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]}
    older = {"enum": ["a", "b"], "enumNames": ["Alpha", "Beta"]}
    fields = read_schema_fields(
        {"properties": {"x": titled_schema, "y": older, "z": {"type": "string", "format": "email"}}}
    )
    assert [each.label for each in fields[0].options] == ["Red", "Green"]
    assert [each.label for each in fields[1].options] == ["Alpha", "Beta"]
    assert fields[2].format == "email"


@given(JSON)
def test_no_schema_breaks_the_form(schema: Any) -> None:
    for each in (
        schema,
        {"properties": schema},
        {"properties": {"x": schema}, "required": schema},
        {"properties": {"x": {"type": "array", "items": schema, "default": schema}}},
        {"properties": {"x": {"oneOf": [schema, {"type": "object", "properties": schema}]}}},
    ):
        if isinstance(each, dict):
            form = ToolForm.from_schema(each)
            assert wrong(form) <= set(form.labels)


def test_a_schema_that_goes_in_circles_ends() -> None:
    circle = {"properties": {"a": {"$ref": "#/properties/a"}}, "allOf": [{"$ref": "#"}]}
    assert [each.kind for each in read_schema_fields(circle)] == ["json"]
    tree: dict[str, Any] = {"$defs": {"node": {"type": "object", "properties": {}}}}
    node = tree["$defs"]["node"]["properties"]
    node["children"] = {"type": "array", "items": {"$ref": "#/$defs/node"}}
    node["next"] = {"$ref": "#/$defs/node"}
    tree["properties"] = {"root": {"$ref": "#/$defs/node"}}

    def deepest(fields: tuple[SchemaField, ...]) -> int:
        inner = [*fields, *(each.item for each in fields if each.item is not None)]
        return 1 + max((deepest(each.fields) for each in inner), default=0)

    assert deepest(read_schema_fields(tree)) < 10


def test_a_small_schema_that_stands_for_very_many_fields_stays_small() -> None:
    wide: dict[str, Any] = {"$defs": {"l9": {"type": "string"}}}
    for level in range(9):
        inner = {f"p{n}": {"$ref": f"#/$defs/l{level + 1}"} for n in range(50)}
        wide["$defs"][f"l{level}"] = {"type": "object", "properties": inner}
    wide["properties"] = {"root": {"$ref": "#/$defs/l0"}}

    def count(fields: tuple[SchemaField, ...]) -> int:
        return sum(1 + count(each.fields) for each in fields)

    assert count(read_schema_fields(wide)) < 2_000


# Arguments.


def submit_form(schema: dict[str, Any], **values: str) -> SubmittedForm:
    names = {each.name: f"arg-{at}" for at, each in enumerate(read_schema_fields(schema))}
    return SubmittedForm({names.get(name, name): [value] for name, value in values.items()})


def test_arguments_have_the_types_of_the_schema() -> None:
    form = submit_form(
        SCHEMA, need="x\r\ny", flag="false", opt="-4", pick="1", num="1.5", body="", free='{"a": 1}'
    )
    assert ToolForm.from_schema(SCHEMA).with_submission(form).arguments() == {
        "need": "x\ny",
        "flag": False,
        "opt": -4,
        "pick": 1,
        "num": 1.5,
        "free": {"a": 1},
    }


def test_invalid_arguments_are_reported_by_field() -> None:
    form = submit_form(SCHEMA, need="", opt="x", num="nan", free="{", flag="", pick="[")
    with pytest.raises(BadArguments) as exc_info:
        ToolForm.from_schema(SCHEMA).with_submission(form).arguments()
    assert len(exc_info.value.errors) == 5
    assert "“flag” is required." in exc_info.value.errors.values()


def test_written_json_counts_instead_of_the_fields() -> None:
    assert ToolForm.from_schema(SCHEMA).with_submission(
        SubmittedForm({"json": ['{"a": [1]}'], "arg-0": ["x"]})
    ).arguments() == {"a": [1]}
    for bad in ("{", "[]", "[" * 100_000, '"x"'):
        with pytest.raises(BadArguments):
            ToolForm.from_schema(SCHEMA).with_submission(SubmittedForm({"json": [bad]})).arguments()


TRIPS = st.fixed_dictionaries(
    {
        "to": st.fixed_dictionaries({"city": st.text()}, optional={"country": st.sampled_from(["NO", "SE"])}),
        "travellers": st.lists(
            st.fixed_dictionaries({"name": st.text(min_size=1)}, optional={"age": st.integers()}), max_size=3
        ),
    },
    optional={
        "by": st.one_of(
            st.fixed_dictionaries({"kind": st.just("train"), "seat": st.sampled_from(["window", "aisle"])}),
            st.fixed_dictionaries({"kind": st.just("boat")}, optional={"cabin": st.booleans()}),
        ),
        "tags": st.lists(st.sampled_from(["work", "fun"]), min_size=1, max_size=2, unique=True),
        "note": st.text(min_size=1) | st.lists(st.text(min_size=1), min_size=1, max_size=3),
    },
)


@given(TRIPS)
def test_a_form_that_is_filled_from_arguments_stands_for_them(trip: dict[str, Any]) -> None:
    words = json.dumps(trip, ensure_ascii=False)
    assume("\\r" not in words and not any(char.isspace() and char != " " for char in words))
    assume(all(text.strip() for text in _texts(trip) if text))
    fields = read_schema_fields(TRIP)
    assert read_form(fields, build_form_texts(fields, trip)) == trip
    form = ToolForm.from_schema(TRIP, trip)
    assert form.written == ""
    assert form.arguments() == trip


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in _texts(each)]


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_arguments_that_do_not_fit_the_form_are_there_as_json(arguments: dict[str, Any]) -> None:
    assert ToolForm.from_schema(TRIP, arguments).arguments() == arguments


def test_defaults_of_the_schema_are_filled_in() -> None:
    form = ToolForm.from_schema(TRIP)
    assert form.texts["arg-0-1"] == ['"NO"']
    assert form.texts["arg-1"] == ["0"]
    with pytest.raises(BadArguments) as exc_info:
        ToolForm.from_schema(SCHEMA).arguments()
    assert list(exc_info.value.errors) == ["arg-1"]


def test_an_optional_object_is_left_out_unless_something_is_in_it() -> None:
    schema = {
        "properties": {
            "o": {
                "type": "object",
                "required": ["n"],
                "properties": {"n": {"type": "integer"}, "t": {"type": "string"}},
            }
        }
    }
    fields = read_schema_fields(schema)
    assert read_form(fields, {}) == {}
    assert read_form(fields, {"arg-0-0": ["4"]}) == {"o": {"n": 4}}
    with pytest.raises(BadArguments):
        read_form(fields, {"arg-0-1": ["words"]})


# Entries come and go, and what was typed stays.


def test_entries_are_added_and_removed_and_all_else_stays() -> None:
    form = ToolForm.from_schema(TRIP).with_submission(
        SubmittedForm({"arg-1": ["0"], "arg-1-e0-0": ["Ada"], "form-add": ["arg-1"], "arg-0-0": ["Oslo"]})
    )
    assert form.only_changed
    assert form.texts["arg-1"] == ["0", "1"]
    again = ToolForm.from_schema(TRIP).with_submission(
        SubmittedForm({**form.texts, "arg-1-e1-0": ["Bob"], "form-drop": ["arg-1-e0"]})
    )
    assert again.texts["arg-1"] == ["1"]
    assert ToolForm.from_schema(TRIP).with_submission(SubmittedForm(again.texts)).arguments() == {
        "to": {"city": "Oslo"},
        "travellers": [{"name": "Bob"}],
    }


TEXTS = st.dictionaries(
    st.from_regex(r"arg-[0-4](-(e?[0-3]|v[01])){0,3}", fullmatch=True),
    st.lists(st.text(max_size=6), max_size=3),
    max_size=12,
)


@given(
    TEXTS,
    st.sampled_from(["form-add", "form-drop", "form-shape", "nothing"]),
    st.from_regex(r"arg-[0-4](-e[0-3])?", fullmatch=True),
)
def test_submitted_values_are_shown_again_or_reported_as_invalid(
    texts: dict[str, list[str]], button: str, value: str
) -> None:
    form = ToolForm.from_schema(TRIP).with_submission(SubmittedForm({**texts, button: [value]}))
    shown_texts = {each.name: each.text for each in _all(form.shown)}
    for name, text in shown_texts.items():
        given_texts = form.texts.get(name)
        if given_texts and not text.isdigit():
            assert text == given_texts[-1]
    assert wrong(form) <= {"json", *build_field_labels(form.shown)}


def _all(fields: Any) -> Any:
    for each in fields:
        yield each
        yield from _all(each.within)


def test_forms_are_bounded_for_every_schema() -> None:
    many = {"arg-1": [str(number) for number in range(5_000)]}
    assert len(build_form_fields(read_schema_fields(TRIP), many)[1].within) == 200
    assert apply_edit_button(SubmittedForm({}), many) is None
