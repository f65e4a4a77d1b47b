"""The sections about built-in tools in the page about chats."""

from __future__ import annotations

import re
from pathlib import Path

from toolyard.agents.builtin_tools.dispatch import NATIVE_TOOLS
from toolyard.catalog.exposed_names import RESERVED_NAMES
from toolyard.config import load_settings

PAGE = Path(__file__).parents[3] / "docs/chat.md"


def section() -> str:
    return PAGE.read_text().split("\n## Built-in tools\n")[1]


def example(language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```$", section(), re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def test_the_setting_of_the_page_is_one(tmp_path: Path) -> None:
    (tmp_path / "toolyard.toml").write_text(example("toml"))
    assert load_settings(tmp_path, env={}).workspace_root == Path("~/projects/shop").expanduser()


def test_every_native_tool_is_on_the_page_and_its_name_is_reserved() -> None:
    assert list(NATIVE_TOOLS) == sorted(NATIVE_TOOLS)
    assert set(NATIVE_TOOLS) <= RESERVED_NAMES
    assert [name for name in NATIVE_TOOLS if f"| `{name}` |" not in section()] == []
