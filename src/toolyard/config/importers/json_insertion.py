"""Insert servers into the text of a configuration file, preserving comments and layout."""

from __future__ import annotations

from collections.abc import Mapping

from toolyard.config.exporters.json_members import detect_newline
from toolyard.config.sources.json_document import JsonValue
from toolyard.config.sources.json_reader import read_json

__all__ = ["insert_servers"]


def insert_servers(text: str, entries: Mapping[str, JsonValue]) -> str:
    """Return the text with the entries at the beginning of ``mcpServers``, which is created if missing.

    ``text`` must be a valid configuration.
    """
    document = read_json(text)
    root = document.root if isinstance(document.root, dict) else {}
    offset = document.find_offset(("mcpServers",))
    if offset is None:
        return _insert_after_brace(
            text, document.root_offset, {"mcpServers": dict(entries)}, bool(root), "  "
        )
    return _insert_after_brace(text, offset, entries, bool(root["mcpServers"]), "    ")


# Entries are inserted right after the opening brace. That needs only one position, and never a decision about
# a trailing comma or about comments after the last member.
def _insert_after_brace(
    text: str, brace: int, entries: Mapping[str, JsonValue], has_members: bool, indent: str
) -> str:
    lines = ",".join(f"\n{_format_member(key, value, indent)}" for key, value in entries.items())
    ending = "," if has_members else f"\n{indent[:-2]}"
    inserted = f"{lines}{ending}".replace("\n", detect_newline(text))
    return f"{text[: brace + 1]}{inserted}{text[brace + 1 :]}"


def _format_member(key: str, value: JsonValue, indent: str) -> str:
    import json  # needed for writing only

    body = json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{indent}")
    return f"{indent}{json.dumps(key, ensure_ascii=False)}: {body}"
