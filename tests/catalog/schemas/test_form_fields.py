"""One reader of schemas for forms, questions in a terminal and arguments on the command line."""

from __future__ import annotations

from typing import Any

import pytest

from toolyard.catalog.schemas.form_fields import InvalidInput, read_schema_fields
from toolyard.cli.chat.approval_prompts import parse_field_input
from toolyard.cli.input.arguments import coerce_key_values
from toolyard.cli.invocation import Usage
from toolyard.web.ui.tools.schema_form import BadArguments, ToolForm, build_form_fields, read_form


def test_a_reference_to_another_document_is_a_field_that_takes_json() -> None:
    (field,) = read_schema_fields({"properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}})
    assert field.kind == "json"


def test_references_are_followed_up_to_a_number_of_parts() -> None:
    schema: dict[str, Any] = {"$defs": {"size": {"type": "integer"}}}
    schema["properties"] = {f"p{number}": {"$ref": "#/$defs/size"} for number in range(50)}
    assert {each.kind for each in read_schema_fields(schema)} == {"integer"}
    kinds = [each.kind for each in read_schema_fields(schema, max_parts=60)]
    assert kinds[0] == "integer"
    assert kinds[-1] == "json"


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"$ref": "#/$defs/size"}, "big", "a whole number"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "nan", "a number"),
        ({"allOf": [{"type": "boolean"}]}, "perhaps", "yes or no"),
    ],
    ids=str,
)
def test_all_interfaces_expect_the_same_input(schema: Any, text: str, expected: str) -> None:
    root: dict[str, Any] = {"$defs": {"size": {"type": "integer"}}, "properties": {"x": schema}}
    (field,) = read_schema_fields(root)
    with pytest.raises(InvalidInput, match=f"^{expected}$"):
        parse_field_input(field, text)
    with pytest.raises(BadArguments, match=f"^“x” must be {expected}.$"):
        read_form((field,), {"arg-0": [text]})
    with pytest.raises(Usage) as exc_info:
        coerce_key_values([f"x={text}"], root)
    assert expected in exc_info.value.cause


def test_an_answer_to_a_server_is_checked_against_limits_and_arguments_are_not() -> None:
    schema = {
        "properties": {
            "age": {"type": "integer", "minimum": 18},
            "mail": {"type": "string", "format": "email"},
        }
    }
    texts = {"arg-0": ["17"], "arg-1": ["nobody"]}
    fields = read_schema_fields(schema)
    assert read_form(fields, texts) == {"age": 17, "mail": "nobody"}
    with pytest.raises(BadArguments) as exc_info:
        read_form(fields, texts, strict=True)
    assert exc_info.value.errors == {
        "arg-0": "“age” must be at least 18.",
        "arg-1": "“mail” must be an email address.",
    }


def test_a_fixed_value_of_a_question_needs_no_input() -> None:
    schema = {"properties": {"kind": {"const": "train"}}, "required": ["kind"]}
    assert ToolForm.from_question(schema, "question").arguments() == {"kind": "train"}


def test_a_choice_takes_its_options_only() -> None:
    fields = read_schema_fields({"properties": {"x": {"enum": ["a", 1]}}})
    assert [option.json for option in build_form_fields(fields, {})[0].field.options] == ['"a"', "1"]
    assert read_form(fields, {"arg-0": ["1"]}) == {"x": 1}
    with pytest.raises(BadArguments, match="one of the choices"):
        read_form(fields, {"arg-0": ["2"]})
