"""Whose answer a broken message was."""

from __future__ import annotations

import pytest

from toolyard.protocol.framing import OversizeLine
from toolyard.protocol.jsonrpc import build_error_for_unreadable


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":7,"result":{"n":NaN}}',
        b'{"id" : 7 , "jsonrpc" : "2.0" , "error" : {"code":NaN}}',
        b'{"id":"7","result":{"method":"tools/call","id":8,"n":NaN}}',
        b'{"jsonrpc":"2.0","result":{"id":8,"n":NaN},"id":7}',
        b'{"result":{"rows":[{"id":8},{"id":9}],"n":NaN},"id":7,"jsonrpc":"2.0"}\r',
    ],
)
def test_the_id_is_recovered_from_a_broken_message(line: bytes) -> None:
    error_message = {"jsonrpc": "2.0", "id": 7, "error": {"code": 0, "message": "why"}}
    assert build_error_for_unreadable(line, "why") == error_message
    assert (
        build_error_for_unreadable(OversizeLine(line[:4096], line[-4096:], len(line)), "why") == error_message
    )


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"n":NaN}}',
        b'{"method":"elicitation/create","params":{"n":NaN},"jsonrpc":"2.0","id":7}',
        b'{"level":"info","id":7,"result":NaN}',
        b'{"jsonrpc":"2.0","result":{"rows":[{"id":7}]',
        b"[1, 2",
        b"{",
    ],
)
def test_messages_that_are_not_responses_end_no_call(line: bytes) -> None:
    assert build_error_for_unreadable(line, "why") is None
