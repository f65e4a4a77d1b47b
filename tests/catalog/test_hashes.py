from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.catalog.hashes import definition_hash, entry_hash
from toolyard.types.server import HttpSpec, OAuthSpec, ProtocolEra, Server, StdioSpec, Timeouts, Trust
from toolyard.types.tool import Definition

BASE = Definition(
    "repo",
    "search",
    "Search",
    "Finds.",
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"maximum": 2**70}}},
    {"type": "object"},
    {"readOnlyHint": True},
)


def reverse_keys(value: Any) -> Any:
    """Return the same JSON value with the keys of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: reverse_keys(value[key]) for key in reversed(value)}
    return [reverse_keys(item) for item in value] if isinstance(value, list) else value


def test_the_order_of_keys_does_not_matter() -> None:
    other = replace(
        BASE, input_schema=reverse_keys(BASE.input_schema), annotations=reverse_keys(BASE.annotations)
    )
    assert list(other.input_schema) != list(BASE.input_schema)
    assert definition_hash(other) == definition_hash(BASE)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"title": None},
        {"description": "Finds more."},
        {"input_schema": {"type": "object"}},
        {"output_schema": None},
        {"annotations": {}},
    ],
)
def test_every_part_counts(change: dict[str, Any]) -> None:
    assert definition_hash(replace(BASE, **change)) != definition_hash(BASE)


def test_integers_beyond_64_bits_are_told_apart() -> None:
    def with_maximum(number: int) -> Definition:
        return replace(BASE, input_schema={"maximum": number})

    assert definition_hash(with_maximum(2**70)) != definition_hash(with_maximum(2**70 + 1))
    assert float(2**70) == float(2**70 + 1)


def test_the_order_of_an_array_counts() -> None:
    one, other = replace(BASE, input_schema={"enum": [1, 2]}), replace(BASE, input_schema={"enum": [2, 1]})
    assert definition_hash(one) != definition_hash(other)


def test_the_hash_ignores_the_server_and_unknown_fields() -> None:
    assert definition_hash(replace(BASE, server_id="x", raw={"_meta": 1})) == definition_hash(BASE)


def test_the_hash_is_that_of_a_text_which_never_changes() -> None:
    """Lock files and approvals store it: a change breaks them all."""
    text = (
        '{"annotations":{"readOnlyHint":true},"description":"Finds.","inputSchema":{"properties":'
        '{"a":{"type":"string"},"b":{"maximum":1180591620717411303424}},"type":"object"},'
        '"name":"search","outputSchema":{"type":"object"},"title":"Search"}'
    )
    assert definition_hash(BASE) == sha256(text.encode()).hexdigest()


def test_another_process_with_another_hash_seed_gets_the_same_hash() -> None:
    program = (
        "from toolyard.catalog.hashes import definition_hash\n"
        "from toolyard.types.tool import Definition\n"
        "print(definition_hash(Definition('s', 'n', None, 'ü\\ud800', {'b': 1.5e300, 'a': [{}]})))"
    )
    stdouts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(stdouts) == 1


@given(st.text(), st.dictionaries(st.text(), st.integers() | st.text()))
def test_no_text_is_too_odd_to_be_hashed(description: str, schema: dict[str, Any]) -> None:
    assert len(definition_hash(replace(BASE, description=description, input_schema=schema))) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"transport": HttpSpec("http://localhost:4011/mcp")},
        {"transport": HttpSpec("http://localhost:4010/mcp", {"X-Key": "1"})},
        {"transport": HttpSpec("http://localhost:4010/mcp", query={"key": "1"})},
        {"transport": HttpSpec("http://localhost:4010/mcp", type="sse")},
        {"transport": HttpSpec("http://localhost:4010/mcp", auth_provider_id="p")},
        {"transport": StdioSpec("server")},
        {"transport": StdioSpec("server", ("--all",))},
        {"transport": StdioSpec("server", env={"A": "1"})},
        {"transport": StdioSpec("server", cwd="/srv")},
        {"protocol": ProtocolEra.LEGACY},
        {"oauth": OAuthSpec(scopes=("all",))},
        {"id": "other"},
    ],
)
def test_settings_that_may_change_the_tools_change_the_entry_hash(
    server: Callable[..., Server], change: dict[str, Any]
) -> None:
    assert entry_hash(replace(server(), **change)) != entry_hash(server())


@pytest.mark.parametrize(
    "change",
    [
        {"timeouts": Timeouts(connect=1)},
        {"label": "Repo"},
        {"trust": Trust.UNTRUSTED},
        {"allow_tools": ("a",)},
        {"enabled": False},
        {"cache_ttl": 5.0},
    ],
)
def test_other_settings_keep_the_entry_hash(server: Callable[..., Server], change: dict[str, Any]) -> None:
    assert entry_hash(replace(server(), **change)) == entry_hash(server())
