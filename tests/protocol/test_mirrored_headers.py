from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from toolyard.protocol.constants import LATEST_MODERN_VERSION
from toolyard.protocol.eras import RequestBuilder
from toolyard.protocol.jsonrpc import Message, build_request
from toolyard.protocol.mirrored_headers import (
    HeaderParam,
    HeaderParamError,
    build_param_headers,
    build_standard_headers,
    decode_header_value,
    encode_header_value,
    find_header_params,
)
from toolyard.protocol.server import find_header_mismatch

# Values.


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_the_examples_of_the_specification_are_encoded_as_it_says(value: str, header: str) -> None:
    assert encode_header_value(value) == header
    assert decode_header_value(header) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a",
        "a b",
        "a\tb",
        "~!@#$%^&*()",
        "=?base64?open",
        "close?=",
        "=?BASE64?QQ==?=",
        '"q"',
        "a=?base64?x?=",
    ],
)
def test_valid_header_values_are_not_encoded(value: str) -> None:
    assert encode_header_value(value) == value
    assert decode_header_value(value) == value


@pytest.mark.parametrize(
    "value",
    [" ", " a", "a ", "\ta", "a\t", "a\r\nX-Evil: 1", "a\x00", "a\x7f", "é", "\u00a0", "\U0001f600", "\n"],
)
def test_invalid_header_values_are_encoded(value: str) -> None:
    header = encode_header_value(value)
    assert header.startswith("=?base64?")
    assert decode_header_value(header) == value


@pytest.mark.parametrize("value", ["=?base64?=", "=?base64??=", "=?base64?a?=", "=?base64?\n?="])
def test_values_that_look_encoded_are_encoded(value: str) -> None:
    assert encode_header_value(value) != value
    assert decode_header_value(encode_header_value(value)) == value


@settings(deadline=None)
@given(st.text() | st.text(alphabet=" \t\r\n=?base64QAé", max_size=30))
@example("=?base64?QQ==?=")
def test_any_text_survives_and_its_header_is_safe(value: str) -> None:
    header = encode_header_value(value)
    assert decode_header_value(header) == value
    assert header.isascii()
    assert header == header.strip(" \t")
    assert all(char == "\t" or " " <= char <= "~" for char in header)


@pytest.mark.parametrize("header", ["!", "QQ", "QQ=", "/w==", "QQ==\n", "Q Q==", "QQ==QQ==", "é", "7aCA"])
def test_marked_base64_that_is_broken_raises_value_error(header: str) -> None:
    with pytest.raises(ValueError):
        decode_header_value(f"=?base64?{header}?=")


@settings(deadline=None)
@given(st.text())
def test_any_header_is_decoded_or_refused_with_value_error(header: str) -> None:
    for text in (header, f"=?base64?{header}?="):
        try:
            assert isinstance(decode_header_value(text), str)
        except ValueError:
            continue


# The standard headers.


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "echo"}, "echo"),
        ("tools/call", {"name": "écho"}, "=?base64?w6ljaG8=?="),
        ("prompts/get", {"name": "hello"}, "hello"),
        ("resources/read", {"uri": "file:///a b"}, "file:///a b"),
        ("resources/read", {"name": "x", "uri": "u:"}, "u:"),
        ("tools/call", {"uri": "x"}, None),
        ("tools/call", {"name": 5}, None),
        ("tools/call", None, None),
        ("tools/list", {"name": "x"}, None),
        ("resources/list", {"uri": "x"}, None),
        ("server/discover", {}, None),
    ],
)
def test_the_method_is_always_mirrored_and_the_name_where_there_is_one(
    method: str, params: dict[str, Any] | None, name: str | None
) -> None:
    expected = {"Mcp-Method": method} | ({} if name is None else {"Mcp-Name": name})
    assert build_standard_headers(method, params) == expected


# Marks in a schema.


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def mirrored_property(header: Any = "Region", type: Any = "string") -> dict[str, Any]:
    return {"type": type, "x-mcp-header": header}


def test_the_example_of_the_specification_mirrors_its_region() -> None:
    tool = schema(region={"description": "The region", **mirrored_property()}, query={"type": "string"})
    params = find_header_params(tool)
    assert params == (HeaderParam(("region",), "Mcp-Param-Region"),)
    assert build_param_headers(params, {"region": "us-west1", "query": "SELECT 1"}) == {
        "Mcp-Param-Region": "us-west1"
    }


@pytest.mark.parametrize(
    "tool", [{}, {"type": "object"}, schema(), schema(a={"type": "string"}), schema(a=True)]
)
def test_a_schema_without_marks_mirrors_nothing(tool: dict[str, Any]) -> None:
    assert find_header_params(tool) == ()


@pytest.mark.parametrize("type", ["string", "integer", "boolean"])
def test_a_mark_is_allowed_on_plain_types(type: str) -> None:
    assert find_header_params(schema(a=mirrored_property(type=type))) == (
        HeaderParam(("a",), "Mcp-Param-Region"),
    )


@pytest.mark.parametrize(
    "type", ["number", "object", "array", "null", ["string", "null"], ["string"], None, 1]
)
def test_a_mark_on_any_other_type_is_forbidden(type: Any) -> None:
    with pytest.raises(HeaderParamError, match="type other than"):
        find_header_params(schema(a=mirrored_property(type=type)))


def test_a_mark_without_a_type_is_forbidden() -> None:
    with pytest.raises(HeaderParamError, match="type other than"):
        find_header_params(schema(a={"x-mcp-header": "Region"}))


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        "a b",
        "a:b",
        "a\r",
        "a\nb",
        "a\r\nX: y",
        "é",
        "a\x00",
        "a\x7f",
        "a/b",
        "(a)",
        '"a"',
        "a,b",
        "a@b",
    ],
)
def test_a_mark_that_is_not_a_token_is_forbidden(header: str) -> None:
    with pytest.raises(HeaderParamError, match="not a valid header name"):
        find_header_params(schema(a=mirrored_property(header)))


@pytest.mark.parametrize("header", [None, 1, True, ["Region"], {"name": "Region"}])
def test_a_mark_that_is_not_a_string_is_forbidden(header: Any) -> None:
    with pytest.raises(HeaderParamError, match="not a valid header name"):
        find_header_params(schema(a=mirrored_property(header)))


@pytest.mark.parametrize("header", ["a", "A-1_b.c", "!#$%&'*+-.^_`|~", "0"])
def test_every_character_of_a_token_is_allowed(header: str) -> None:
    assert find_header_params(schema(a=mirrored_property(header))) == (
        HeaderParam(("a",), f"Mcp-Param-{header}"),
    )


def test_two_marks_that_differ_only_in_case_are_forbidden() -> None:
    with pytest.raises(HeaderParamError, match="twice"):
        find_header_params(schema(a=mirrored_property("Region"), b=mirrored_property("rEGION")))
    with pytest.raises(HeaderParamError, match="twice"):
        find_header_params(schema(a=mirrored_property("Region"), b=schema(c=mirrored_property("region"))))
    assert len(find_header_params(schema(a=mirrored_property("Region"), b=mirrored_property("Region2")))) == 2


def test_marks_on_nested_properties_are_found_with_their_path() -> None:
    tool = schema(a=schema(b=schema(c=mirrored_property("C", "integer")), d=mirrored_property("D")))
    assert find_header_params(tool) == (
        HeaderParam(("a", "b", "c"), "Mcp-Param-C"),
        HeaderParam(("a", "d"), "Mcp-Param-D"),
    )
    arguments = {"a": {"b": {"c": 7}, "d": "x"}, "c": 8}
    assert build_param_headers(find_header_params(tool), arguments) == {
        "Mcp-Param-C": "7",
        "Mcp-Param-D": "x",
    }


@pytest.mark.parametrize(
    "wrap",
    [
        lambda mark: {"items": mark},
        lambda mark: {"prefixItems": [mark]},
        lambda mark: {"contains": mark},
        lambda mark: {"unevaluatedItems": mark},
        lambda mark: {"additionalItems": mark},
        lambda mark: {"oneOf": [mark]},
        lambda mark: {"anyOf": [{"type": "null"}, mark]},
        lambda mark: {"allOf": [mark]},
        lambda mark: {"not": mark},
        lambda mark: {"if": mark},
        lambda mark: {"then": mark},
        lambda mark: {"else": mark},
        lambda mark: {"$defs": {"x": mark}},
        lambda mark: {"definitions": {"x": mark}},
        lambda mark: {"patternProperties": {".*": mark}},
        lambda mark: {"additionalProperties": mark},
        lambda mark: {"unevaluatedProperties": mark},
        lambda mark: {"propertyNames": mark},
        lambda mark: {"dependentSchemas": {"x": mark}},
        lambda mark: {"contentSchema": mark},
    ],
)
@pytest.mark.parametrize(
    "inner", [lambda mark: mark, lambda mark: schema(b=mark)], ids=["directly", "deeper"]
)
@pytest.mark.parametrize(
    "outer", [lambda part: part, lambda part: schema(a=part)], ids=["at the root", "nested"]
)
def test_a_mark_where_no_chain_of_properties_leads_is_forbidden(wrap: Any, inner: Any, outer: Any) -> None:
    with pytest.raises(HeaderParamError, match="not on a property with a fixed path"):
        find_header_params(outer(wrap(inner(mirrored_property()))))


def test_a_property_defined_by_reference_is_not_followed_but_its_definition_is_seen() -> None:
    tool = schema(a={"$ref": "#/$defs/region"}) | {"$defs": {"region": mirrored_property()}}
    with pytest.raises(HeaderParamError):
        find_header_params(tool)
    assert (
        find_header_params(schema(a={"$ref": "#/$defs/region"}) | {"$defs": {"region": {"type": "string"}}})
        == ()
    )


def test_a_mark_at_the_root_is_forbidden() -> None:
    with pytest.raises(HeaderParamError, match="the root"):
        find_header_params(mirrored_property())


@pytest.mark.parametrize("keyword", ["default", "const", "enum", "examples"])
def test_a_mark_inside_example_data_is_ignored(keyword: str) -> None:
    data: Any = {"x-mcp-header": "Region"}
    assert (
        find_header_params(schema(a={"type": "object", keyword: [data] if keyword == "enum" else data})) == ()
    )


@pytest.mark.parametrize("name", ["x-mcp-header", "default", "items", "properties", "$defs", "enum"])
def test_a_property_may_have_any_name(name: str) -> None:
    assert find_header_params(schema(**{name: {"type": "string"}})) == ()
    assert find_header_params(schema(**{name: mirrored_property()})) == (
        HeaderParam((name,), "Mcp-Param-Region"),
    )


def test_the_reason_names_the_parameter() -> None:
    with pytest.raises(HeaderParamError, match=r"a\.b"):
        find_header_params(schema(a=schema(b=mirrored_property("", "string"))))


nodes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "items", "anyOf", "x-mcp-header", "type", "a", "default"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["properties", "x-mcp-header", "type", "$defs"]), nodes))
def test_any_schema_is_read_or_refused(tool: dict[str, Any]) -> None:
    try:
        params = find_header_params(tool)
    except HeaderParamError:
        return
    assert all(param.path and param.header.startswith("Mcp-Param-") for param in params)


def test_a_schema_without_end_is_read() -> None:
    tool: dict[str, Any] = {}
    tool["properties"] = {"self": tool}
    assert find_header_params(tool) == ()


# Values of the parameters.

REGION = (HeaderParam(("region",), "Mcp-Param-Region"),)


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("", ""),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (True, "true"),
        (False, "false"),
        (42, "42"),
        (-7, "-7"),
        (0, "0"),
        (42.0, "42"),
        (2**53 - 1, "9007199254740991"),
        (-(2**53) + 1, "-9007199254740991"),
    ],
)
def test_a_value_is_mirrored_as_text(value: Any, header: str) -> None:
    assert build_param_headers(REGION, {"region": value, "other": 1}) == {"Mcp-Param-Region": header}


@pytest.mark.parametrize(
    "value", [None, 2**53, -(2**53), 1.5, float("inf"), float("nan"), [], ["a"], {}, {"a": 1}]
)
def test_values_without_a_text_form_are_omitted(value: Any) -> None:
    assert build_param_headers(REGION, {"region": value}) == {}


@pytest.mark.parametrize(
    "arguments", [{}, {"a": None}, {"a": 5}, {"a": "b"}, {"a": ["b"]}, {"a": {}}, {"b": "x"}]
)
def test_arguments_missing_at_the_exact_path_are_omitted(arguments: dict[str, Any]) -> None:
    assert build_param_headers((HeaderParam(("a", "b"), "Mcp-Param-B"),), arguments) == {}


# The side that serves.

SPEAKER = RequestBuilder({"name": "test", "version": "1"}, {})


def call(**arguments: Any) -> Message:
    return build_request(1, "tools/call", SPEAKER.build_params({"name": "query", "arguments": arguments}))


def headers_of(
    message: Message, params: tuple[HeaderParam, ...] = (), **changes: str | None
) -> CIMultiDict[str]:
    """What a well-behaved client sends with a message, but for these changes."""
    headers = {
        "MCP-Protocol-Version": LATEST_MODERN_VERSION,
        **build_standard_headers(message["method"], message["params"]),
    }
    headers |= build_param_headers(params, message["params"].get("arguments") or {})
    for key, value in changes.items():
        name = key.replace("_", "-")
        headers = {name_: text for name_, text in headers.items() if name_.lower() != name.lower()}
        if value is not None:
            headers[name] = value
    return CIMultiDict(headers)


def check_headers(
    message: Message, params: tuple[HeaderParam, ...] = (), **changes: str | None
) -> str | None:
    return find_header_mismatch(
        headers_of(message, params, **changes), message, LATEST_MODERN_VERSION, params
    )


def test_our_server_accepts_our_clients_headers() -> None:
    assert check_headers(call(region="é", n=7), REGION) is None
    assert check_headers(build_request(1, "tools/list", SPEAKER.build_params(None))) is None
    assert (
        check_headers(build_request(1, "resources/read", SPEAKER.build_params({"uri": "file:///é"}))) is None
    )


@settings(deadline=None)
@given(
    name=st.text(),
    region=st.text() | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False),
    padding=st.sampled_from(["", " ", "\t "]),
)
def test_our_server_accepts_every_header_of_our_client(name: str, region: Any, padding: str) -> None:
    arguments = {"name": name, "arguments": {"region": region}}
    message = build_request(1, "tools/call", SPEAKER.build_params(arguments))
    headers = headers_of(message, REGION)
    for key in ("Mcp-Name", "Mcp-Param-Region"):
        if key in headers:
            headers[key] = padding + headers[key] + padding
    assert find_header_mismatch(headers, message, LATEST_MODERN_VERSION, REGION) is None


def test_names_of_headers_have_no_case() -> None:
    message = call(region="x")
    headers = CIMultiDict({key.upper(): value for key, value in headers_of(message, REGION).items()})
    assert find_header_mismatch(headers, message, LATEST_MODERN_VERSION, REGION) is None


@pytest.mark.parametrize("header", ["MCP_Protocol_Version", "Mcp_Method", "Mcp_Name", "Mcp_Param_Region"])
def test_a_missing_header_is_told(header: str) -> None:
    reason = check_headers(call(region="x"), REGION, **{header: None})
    assert reason is not None
    assert header.replace("_", "-") in reason


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("MCP_Protocol_Version", "2025-11-25"),
        ("Mcp_Method", "tools/list"),
        ("Mcp_Method", "TOOLS/CALL"),
        ("Mcp_Method", encode_header_value(" ").replace("IA==", "dG9vbHMvY2FsbA==")),
        ("Mcp_Name", "other"),
        ("Mcp_Name", "Query"),
        ("Mcp_Name", ""),
        ("Mcp_Name", "=?base64?b3RoZXI=?="),
        ("Mcp_Name", "=?base64?!?="),
        ("Mcp_Param_Region", "us"),
        ("Mcp_Param_Region", "=?base64?dXM=?="),
        ("Mcp_Param_Region", "=?base64?/w==?="),
    ],
)
def test_a_header_that_says_something_else_is_told(header: str, value: str) -> None:
    reason = check_headers(call(region="eu"), REGION, **{header: value})
    assert reason is not None
    assert header.replace("_", "-") in reason


def test_an_encoded_header_is_decoded_before_it_is_compared() -> None:
    encoded_headers = {"Mcp_Name": "=?base64?cXVlcnk=?=", "Mcp_Param_Region": "=?base64?ZXU=?="}
    assert check_headers(call(region="eu"), REGION, **encoded_headers) is None


@pytest.mark.parametrize(("name", "header"), [("é", "é"), ("a\nb", "a\nb"), ("a\x00", "a\x00")])
def test_characters_that_must_be_encoded_are_refused_even_where_they_match(name: str, header: str) -> None:
    message = build_request(1, "tools/call", SPEAKER.build_params({"name": name}))
    reason = check_headers(message, Mcp_Name=header)
    assert reason is not None
    assert "encoded" in reason


@pytest.mark.parametrize(
    ("value", "header"),
    [
        (42, "42"),
        (42, "42.0"),
        (42, "42.000"),
        (-7, "-7.0"),
        (42.0, "42"),
        (42.0, "42.0"),
        (42, "=?base64?NDIuMA==?="),
    ],
)
def test_numbers_are_compared_as_numbers(value: Any, header: str) -> None:
    assert check_headers(call(region=value), REGION, Mcp_Param_Region=header) is None


@pytest.mark.parametrize(
    ("value", "header"),
    [
        (42, "43"),
        (42, "42.1"),
        (42, "4_2"),
        (42, "42.0x"),
        (42, "nan"),
        (9007199254740991, "9007199254740991.4"),
        (True, "1"),
        (True, "True"),
        (False, "0.0"),
    ],
)
def test_numbers_and_booleans_that_differ_are_told(value: Any, header: str) -> None:
    assert check_headers(call(region=value), REGION, Mcp_Param_Region=header) is not None


@pytest.mark.parametrize(
    ("value", "header"),
    [("42", "42.0"), ("1", "01"), ("12345678901234567890", "12345678901234567891"), ("1000", "1e3")],
)
def test_strings_of_digits_are_compared_as_strings(value: str, header: str) -> None:
    # Else whoever routes by the header and whoever acts on the body would see two different tenants.
    assert check_headers(call(region=value), REGION, Mcp_Param_Region=header) is not None
    message = build_request(1, "tools/call", SPEAKER.build_params({"name": value}))
    assert check_headers(message, Mcp_Name=header) is not None


@pytest.mark.parametrize("arguments", [{}, {"region": None}, {"region": [1]}, {"region": 2**60}])
def test_a_header_for_a_value_that_the_body_does_not_have_is_told(arguments: dict[str, Any]) -> None:
    assert check_headers(call(**arguments), REGION) is None
    reason = check_headers(call(**arguments), REGION, Mcp_Param_Region="eu")
    assert reason is not None
    assert "no value" in reason


def test_undeclared_headers_are_ignored() -> None:
    assert (
        check_headers(call(region="eu"), (), Mcp_Param_Region="us", Mcp_Param_Other="x", X_Other="é") is None
    )


@pytest.mark.parametrize("arguments", [None, [], ["region"], "text", 5])
def test_arguments_that_are_not_an_object_do_not_raise(arguments: Any) -> None:
    message = build_request(1, "tools/call", SPEAKER.build_params({"name": "query", "arguments": arguments}))
    headers = headers_of(call())
    assert find_header_mismatch(headers, message, LATEST_MODERN_VERSION, REGION) is None
