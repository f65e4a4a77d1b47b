from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolyard.auth import Challenge, parse_challenge


def params(header: str) -> dict[str, str]:
    return dict(parse_challenge(401, header).params)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            'Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource"',
            {"resource_metadata": "https://mcp.example.com/.well-known/oauth-protected-resource"},
        ),
        (
            'Bearer error="insufficient_scope", scope="files:read files:write user:profile", '
            'resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource", '
            'error_description="Additional file write permission required"',
            {
                "error": "insufficient_scope",
                "scope": "files:read files:write user:profile",
                "resource_metadata": "https://mcp.example.com/.well-known/oauth-protected-resource",
                "error_description": "Additional file write permission required",
            },
        ),
        (
            'Bearer realm="OAuth", error="invalid_token", error_description="Missing, or a = wrong one"',
            {"realm": "OAuth", "error": "invalid_token", "error_description": "Missing, or a = wrong one"},
        ),
        (
            'Bearer error="invalid_token",error_description="x"',
            {"error": "invalid_token", "error_description": "x"},
        ),
        ("Bearer error=invalid_token, scope=read", {"error": "invalid_token", "scope": "read"}),
        (
            "Bearer resource_metadata=https://a.example/.well-known/x?y=z, scope=read",
            {"resource_metadata": "https://a.example/.well-known/x?y=z", "scope": "read"},
        ),
        ('Bearer realm = "a" , scope= "b"', {"realm": "a", "scope": "b"}),
        ('bearer REALM="a", Resource_Metadata="b"', {"realm": "a", "resource_metadata": "b"}),
        ('Bearer scope=""', {"scope": ""}),
        (r'Bearer realm="say \"hi\" \\ there"', {"realm": r'say "hi" \ there'}),
        (
            r'Bearer realm="a \", resource_metadata=\"https://evil.example\" "',
            {"realm": 'a ", resource_metadata="https://evil.example" '},
        ),
        (
            'Basic realm="site", Bearer resource_metadata="https://a.example/m", scope="x"',
            {"realm": "site", "resource_metadata": "https://a.example/m", "scope": "x"},
        ),
        ('Bearer realm="first", realm="second"', {"realm": "first"}),
        ("Bearer", {}),
        ("Negotiate", {}),
        ("", {}),
        ("Bearer realm", {}),
        ("Bearer =", {}),
        ("Bearer ,,,", {}),
    ],
)
def test_a_challenge_is_read_as_far_as_it_can_be_read(header: str, expected: dict[str, str]) -> None:
    assert parse_challenge(401, header) == Challenge(401, header, expected)


def test_a_refusal_without_a_challenge_has_no_parameters() -> None:
    assert parse_challenge(403, None) == Challenge(403, None, {})


def test_an_unclosed_quote_does_not_hide_earlier_parameters() -> None:
    read = params('Bearer resource_metadata="https://a.example/m", error="invalid')
    assert read["resource_metadata"] == "https://a.example/m"


names = st.from_regex(r"[a-z][a-z0-9_-]{0,10}", fullmatch=True)
quotable = st.text(alphabet=st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=30)


def quote(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@settings(deadline=None)
@given(st.dictionaries(names, quotable, max_size=6), st.sampled_from([", ", ",", " , "]))
@example({"realm": 'a", scope="b', "scope": "c\\"}, ", ")
def test_quoted_values_round_trip(given_params: dict[str, str], between: str) -> None:
    header = "Bearer " + between.join(f"{name}={quote(value)}" for name, value in given_params.items())
    assert params(header) == given_params


@settings(deadline=None)
@given(st.text() | st.text(alphabet='ab=", \\\t-_é', max_size=60))
@example('="')
@example('a="\\')
def test_any_header_is_read(header: str) -> None:
    challenge = parse_challenge(401, header)
    assert challenge.header == header
    assert all(name and name == name.lower() for name in challenge.params)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("piece", ["a", 'a="', 'a="\\', "a ", "a=", '"', "\\", "=", " ", "a\t=", "a-_"])
def test_a_hostile_header_takes_no_time(piece: str) -> None:
    # A parser that starts again at every character takes more than a second for one of them.
    header = (piece * 100_000)[:100_000]
    for _ in range(100):
        assert parse_challenge(401, header).header == header


def test_overlong_headers_are_not_read() -> None:
    assert params("Bearer " + "x" * 100_000 + ', scope="late"') == {}
