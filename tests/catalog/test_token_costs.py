from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.catalog.token_costs import estimate_definition_tokens, estimate_tokens
from toolyard.types.tool import Definition


@pytest.mark.parametrize(
    ("text", "token_count"),
    [
        (
            '{"name":"echo","description":"Echoes back the input string","inputSchema":{"type":"object",'
            '"properties":{"message":{"type":"string","description":"Message to echo"}},'
            '"required":["message"]}}',
            41,
        ),
        (
            '{"name":"read_multiple_files","description":"Read the contents of several files at once. Each '
            "file's content is returned with its path as a reference. Failed reads for individual files do "
            'not stop the operation.","parameters":{"type":"object","properties":{"paths":{"type":"array",'
            '"items":{"type":"string"},"minItems":1,"description":"File paths to read."},"maxBytes":'
            '{"type":"integer","minimum":1,"maximum":1048576,"default":65536}},"required":["paths"],'
            '"additionalProperties":false}}',
            109,
        ),
        ("获取指定城市的当前天气信息，并返回温度和湿度。" * 3, 45),
        ("Получить текущую погоду для указанного города и вернуть температуру. " * 3, 46),
        ("🌤️🌧️❄️🔥" * 10, 100),
    ],
    ids=["echo", "read", "chinese", "russian", "emoji"],
)
def test_the_estimate_is_near_the_count_of_o200k_base(text: str, token_count: int) -> None:
    assert estimate_tokens(text) == pytest.approx(token_count, rel=0.2)


def test_nothing_costs_nothing() -> None:
    assert estimate_tokens("") == 0


@given(st.text(max_size=40), st.text(max_size=40))
def test_more_text_never_costs_less(one: str, other: str) -> None:
    assert estimate_tokens(one) <= estimate_tokens(one + other)
    assert estimate_tokens(one + other) <= estimate_tokens(one) + estimate_tokens(other)


def test_a_definition_costs_its_name_description_and_input_schema() -> None:
    small = Definition("s", "t", input_schema={"type": "object"})
    definition = Definition(
        "s", "t", description="What it does, in many words.", input_schema={"type": "object"}
    )
    larger = Definition("s", "t", input_schema={"type": "object", "properties": {"n": {"maximum": 2**70}}})
    assert 0 < estimate_definition_tokens(small) < estimate_definition_tokens(definition)
    assert estimate_definition_tokens(small) < estimate_definition_tokens(larger)
    assert estimate_definition_tokens(
        Definition("s", "t", input_schema={"type": "object"}, raw={"x": "y" * 999})
    ) == (estimate_definition_tokens(small))
