"""Eras are asked for their behaviour; few modules name one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import toolyard
from toolyard.protocol.eras import ERAS, LEGACY, MODERN, Era, detect_era, era_of_version, find_era
from toolyard.protocol.jsonrpc import build_request
from toolyard.types.server import ProtocolEra

SOURCE = Path(toolyard.__file__).parent

NAMES = {"MODERN", "LEGACY", "MODERN_VERSIONS", "LEGACY_VERSIONS", "MODERN_ERROR_CODES"}
NAMES |= {"LATEST_MODERN_VERSION", "LATEST_LEGACY_VERSION"}

MODULES_THAT_NAME_AN_ERA = {
    "gateway/http/legacy.py",  # sessions over HTTP
    "protocol/handshake.py",  # the messages of the handshake
    "protocol/constants.py",  # the versions
    "protocol/eras.py",
    "protocol/server.py",  # the messages of the handshake
    "transports/transport_table.py",  # SSE has only one era
    "types/server.py",  # the words of the configuration
}


def names_of_eras(path: Path) -> set[str]:
    """Return the names of eras in the code of a module, as variables, attributes and compared strings."""
    era_names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name | ast.alias):
            era_names.add(node.id if isinstance(node, ast.Name) else node.name)
        elif isinstance(node, ast.Attribute):
            era_names |= {node.attr, "MODERN" if node.attr in ("modern", "is_modern", "_is_modern") else ""}
        elif isinstance(node, ast.Compare):
            texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            era_names |= {text.upper() for text in texts if text in ("modern", "legacy")}
    return era_names & NAMES


def test_few_modules_name_an_era() -> None:
    naming = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        # Programs that are servers themselves, and import nothing of the package.
        if path.name not in ("demo_server.py", "playground_server.py") and names_of_eras(path)
    }
    assert naming == MODULES_THAT_NAME_AN_ERA


def test_every_era_can_be_configured_by_its_name() -> None:
    assert {era.name for era in ERAS} == {each.value for each in ProtocolEra} - {ProtocolEra.AUTO.value}
    assert [find_era(era.name) for era in ERAS] == [*ERAS]
    assert find_era("auto") is find_era(None) is None


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.name)
def test_a_version_belongs_to_one_era(era: Era) -> None:
    assert all(era_of_version(version) is era for version in era.versions)
    assert era.assumed_version in era.versions


def test_an_unknown_version_belongs_to_the_newest_era() -> None:
    assert era_of_version("2099-01-01") is ERAS[0]


def test_the_version_in_the_header_tells_the_era_of_a_message_without_metadata() -> None:
    message = build_request(1, "tools/list")
    assert detect_era(message) is LEGACY
    assert detect_era(message, "2025-06-18") is LEGACY
    assert detect_era(message, "2026-07-28") is MODERN


def test_a_method_of_one_era_is_unknown_in_others() -> None:
    assert LEGACY.has_method("ping")
    assert not MODERN.has_method("ping")
    assert MODERN.has_method("server/discover")
    assert not LEGACY.has_method("server/discover")
    assert all(era.has_method("tools/call") for era in ERAS)
