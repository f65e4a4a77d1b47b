"""Contents of the pages of the documentation: examples in fences, headings, links.

A comment on the line above a fence says how an example is run, where it is not run like any other:

    <!-- not run: why -->      it is not, for this reason
    <!-- run by tests/… -->    that test does it
    <!-- keeps running -->     it is left running once it has printed what the page shows
    <!-- ends with 1 -->       it ends with this code
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from tests.conftest import ROOT

PAGES = sorted(
    ["README.md", "CHANGELOG.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
)
CHECKED_LANGUAGES = ("sh", "python", "json", "toml")
_FENCE = re.compile(
    r"(?:^<!-- (?P<marker>[^\n]+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Example:
    """One fenced block, and its expected output: the block ``text`` right below."""

    page: str
    line: int
    language: str
    text: str
    marker: str = ""
    shown: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def examples(page: str) -> list[Example]:
    """Return all examples that a test has to run or check, in order."""
    return [each for each in _blocks(page) if each.language in CHECKED_LANGUAGES]


def _blocks(page: str) -> Iterator[Example]:
    text = read(page)
    fences = list(_FENCE.finditer(text))
    for one, after in zip_longest(fences, fences[1:]):
        shown_text = ""
        if after and after["language"] == "text" and not text[one.end() : after.start()].strip():
            shown_text = after["text"]
        line = text.count("\n", 0, one.start("language")) + 1
        yield Example(page, line, one["language"], one["text"], one["marker"] or "", shown_text)


def remove_fences(page: str) -> str:
    return re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)


def links(page: str) -> Iterator[str]:
    """Return the targets of links and images, of Markdown and of HTML."""
    text = remove_fences(page)
    yield from re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text))
    yield from re.findall(r'(?:src|srcset|href)="([^"]+)"', text)


def anchors(page: str) -> set[str]:
    """Return the anchors of its headings, as GitHub makes them."""
    link_names: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", remove_fences(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (f"{anchor}-{number}" if number else anchor) in link_names:
            number += 1
        link_names.add(f"{anchor}-{number}" if number else anchor)
    return link_names
