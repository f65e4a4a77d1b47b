"""A program: the text of an HTML page, as somebody reads it. Runs apart, see ``apart.py``.

Headings, lists, links, tables and code keep a trace of what they are, in Markdown's way. What a reader of the
page does not see (scripts, styles, hidden parts) is left out.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from urllib.parse import urljoin

from toolyard.agents.builtin_tools.worker_protocol import serve

__all__ = ["main", "page_text"]

_NO_TEXT = "script style template noscript svg math iframe object canvas select datalist"
_STANDING = """
address article aside blockquote body details dialog dd div dl dt fieldset figcaption figure footer form
header hr html li main nav ol p pre section summary table tbody tfoot thead tr ul h1 h2 h3 h4 h5 h6
"""
_ALONE = "area base br col embed hr img input link meta source track wbr"
_UNSEEN = frozenset(_NO_TEXT.split())
_BLOCKS = frozenset(_STANDING.split())
_VOID = frozenset(_ALONE.split())
_HIDING = re.compile(r"display:none|visibility:hidden")
_SPACES = re.compile(r"[ \t\n\r\f\v\u00a0]+")
_LONGEST = 2_000_000


class _Enough(Exception):
    """There is more text than anybody asks for."""


class _Reader(HTMLParser):
    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._base = address
        self._parts: list[str] = []
        self._length = 0
        self._unseen: tuple[str, int] | None = None
        """The element that is left out, and how many of its name are open."""
        self._in_title = False
        self._pre = 0
        self._lists = 0
        self._link: tuple[str, int] | None = None
        """The address of the link that is open, and where its text begins."""

    # What the page says.

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipping(tag):
            return
        given = {name: value or "" for name, value in attrs}
        if tag not in _VOID and (tag in _UNSEEN or _is_hidden(given)):
            self._unseen = (tag, 1)
            return
        if tag in _BLOCKS:
            self._end_link()
            self._break()
        self._begin(tag, given)

    def handle_endtag(self, tag: str) -> None:
        if self._unseen is not None:
            name, depth = self._unseen
            if tag == name:
                self._unseen = (name, depth - 1) if depth > 1 else None
            return
        if tag == "title":
            self._in_title = False
        elif tag == "a":
            self._end_link()
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self._put("\n```\n" if not self._pre else "")
        elif tag in ("ul", "ol"):
            self._lists = max(0, self._lists - 1)
        elif tag == "code" and not self._pre:
            self._put("`")
        if tag in _BLOCKS:
            self._end_link()
            self._break()

    def handle_data(self, data: str) -> None:
        if self._unseen is not None:
            return
        if self._in_title:
            self.title += data
        elif self._pre:
            self._put(data)
        else:
            text = _SPACES.sub(" ", data)
            if text.startswith(" ") and self._at_start():
                text = text[1:]
            self._put(text)

    # What is made of it.

    def text(self) -> str:
        """Everything so far, without empty lines in a row."""
        self._end_link()
        lines = (line.rstrip() for line in "".join(self._parts).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")

    def _begin(self, tag: str, given: dict[str, str]) -> None:
        if tag == "title" and not self.title:
            self._in_title = True
        elif tag == "base" and given.get("href"):
            self._base = _joined(self._base, given["href"]) or self._base
        elif tag[0] == "h" and tag[1:].isdigit():
            self._put(f"\n{'#' * int(tag[1:])} ")
        elif tag == "li":
            self._put("  " * max(0, self._lists - 1) + "- ")
        elif tag in ("ul", "ol"):
            self._lists += 1
        elif tag in ("td", "th"):
            self._put("" if self._at_start() else " | ")
        elif tag == "br":
            self._put("\n")
        elif tag == "hr":
            self._put("---\n")
        elif tag == "pre":
            self._put("```\n" if not self._pre else "")
            self._pre += 1
        elif tag == "p":
            self._put("" if self._at_start(after_list=True) else "\n")
        elif tag == "code" and not self._pre:
            self._put("`")
        elif tag == "img" and given.get("alt", "").strip():
            self._put(_SPACES.sub(" ", given["alt"]))
        elif tag == "a":
            self._begin_link(given.get("href", ""))

    def _begin_link(self, href: str) -> None:
        self._end_link()
        target = _joined(self._base, href) if href and not href.startswith("#") else None
        if target is not None:
            self._link = (target, len(self._parts))

    def _end_link(self) -> None:
        if self._link is None:
            return
        target, at = self._link
        self._link = None
        words = _SPACES.sub(" ", "".join(self._parts[at:])).strip()
        if words:
            del self._parts[at:]
            self._put(f"[{words}]({target})")

    def _skipping(self, tag: str) -> bool:
        if self._unseen is None:
            return False
        name, depth = self._unseen
        if name == tag == "p":
            # A paragraph ends where the next one begins, closed or not.
            self._unseen = None
            return False
        if tag == name:
            self._unseen = (name, depth + 1)
        return True

    def _at_start(self, *, after_list: bool = False) -> bool:
        last = self._parts[-1] if self._parts else "\n"
        return last.endswith(("\n", " ")) if not after_list else last.endswith("- ")

    def _break(self) -> None:
        if self._parts and not self._parts[-1].endswith(("\n", "- ")):
            self._put("\n")

    def _put(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._length += len(text)
            if self._length > _LONGEST:
                raise _Enough


def _is_hidden(given: dict[str, str]) -> bool:
    style = given.get("style", "").replace(" ", "").lower()
    return "hidden" in given or given.get("aria-hidden") == "true" or _HIDING.search(style) is not None


def _joined(base: str, href: str) -> str | None:
    """Where a link leads; None where that is no page."""
    try:
        target = urljoin(base, href.strip())
    except ValueError:
        return None
    fit = target.lower().startswith(("http://", "https://")) and not re.search(r"[\s()<>\x00-\x1f]", target)
    return target[:2000] if fit else None


def page_text(page: str, address: str) -> tuple[str, str]:
    """The title and the text of a page."""
    reader = _Reader(address)
    try:
        reader.feed(page)
        reader.close()
    except (_Enough, AssertionError):
        pass  # What was read so far; the library gives up on some that are no pages.
    return _SPACES.sub(" ", reader.title).strip(), reader.text()


def main() -> None:
    """Serve whoever started the program: ``page`` and ``address`` come in, ``title`` and ``text`` go out."""

    def answer(message: bytes) -> bytes:
        given = json.loads(message)
        title, text = page_text(given["page"], given["address"])
        return json.dumps({"title": title, "text": text}).encode()

    serve(answer)
