"""A transport is registered in one table, and named in few modules."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import toolyard
from toolyard.config import parse_config
from toolyard.protocol.eras import ERAS
from toolyard.transports.transport_table import TRANSPORTS
from toolyard.types.server import URL_TRANSPORT_LABELS, TransportName, UrlTransportName

SOURCE = Path(toolyard.__file__).parent


def test_every_transport_has_an_entry_and_every_one_to_a_url_a_label() -> None:
    assert set(get_args(TransportName)) == TRANSPORTS.keys()
    assert set(get_args(UrlTransportName)) == URL_TRANSPORT_LABELS.keys()


def test_every_transport_can_be_configured() -> None:
    for name in TRANSPORTS:
        place = {"command": "server"} if name == "stdio" else {"url": "https://example.com/mcp"}
        entries = {"servers": {"one": {"trust": "trusted", "transport": {"type": name, **place}}}}
        assert parse_config(entries).servers["one"].transport.type == name


def test_an_older_transport_exists_and_its_eras_are_known() -> None:
    for kind in TRANSPORTS.values():
        assert kind.older is None or kind.older in TRANSPORTS
        assert set(kind.eras) <= set(ERAS)


def test_beside_its_own_module_a_transport_is_named_in_three() -> None:
    naming = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(
            isinstance(node, ast.Constant) and node.value == "sse"
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert naming == {"config/entries/servers.py", "transports/transport_table.py", "types/server.py"}
