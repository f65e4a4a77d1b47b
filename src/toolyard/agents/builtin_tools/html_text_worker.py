"""Worker program: extract the readable text of an HTML page. Started by ``workers``.

Headings, lists, links, tables and code are kept in Markdown notation. Content that a reader does not see
(scripts, styles, hidden elements) is omitted.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from urllib.parse import urljoin

from toolyard.workers.worker_protocol import serve_requests

__all__ = ["extract_page_text", "main"]

_SKIPPED_TAG_NAMES = "script style template noscript svg math iframe object canvas select datalist"
_BLOCK_TAG_NAMES = """
address article aside blockquote body details dialog dd div dl dt fieldset figcaption figure footer form
header hr html li main nav ol p pre section summary table tbody tfoot thead tr ul h1 h2 h3 h4 h5 h6
"""
_VOID_TAG_NAMES = "area base br col embed hr img input link meta source track wbr"
_SKIPPED_TAGS = frozenset(_SKIPPED_TAG_NAMES.split())
_BLOCK_TAGS = frozenset(_BLOCK_TAG_NAMES.split())
_VOID_TAGS = frozenset(_VOID_TAG_NAMES.split())
_HIDDEN_STYLE_PATTERN = re.compile(r"display:none|visibility:hidden")
_WHITESPACE_PATTERN = re.compile(r"[ \t\n\r\f\v\u00a0]+")
_MAX_TEXT_CHARACTERS = 2_000_000


class _TextLimitReached(Exception):
    """Raised when the text exceeds the maximum length."""


class _PageTextParser(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._base_url = url
        self._parts: list[str] = []
        self._text_length = 0
        self._skipped_element: tuple[str, int] | None = None
        """The omitted element, and the number of open elements of the same name."""
        self._in_title = False
        self._pre_depth = 0
        self._list_depth = 0
        self._pending_link: tuple[str, int] | None = None
        """Target of the open link, and the index at which its text starts."""

    # Parser callbacks.

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skip_start_tag(tag):
            return
        attributes = {name: value or "" for name, value in attrs}
        if tag not in _VOID_TAGS and (tag in _SKIPPED_TAGS or _is_hidden(attributes)):
            self._skipped_element = (tag, 1)
            return
        if tag in _BLOCK_TAGS:
            self._end_link()
            self._break_line()
        self._open_tag(tag, attributes)

    def handle_endtag(self, tag: str) -> None:
        if self._skipped_element is not None:
            name, depth = self._skipped_element
            if tag == name:
                self._skipped_element = (name, depth - 1) if depth > 1 else None
            return
        if tag == "title":
            self._in_title = False
        elif tag == "a":
            self._end_link()
        elif tag == "pre" and self._pre_depth:
            self._pre_depth -= 1
            self._append_text("\n```\n" if not self._pre_depth else "")
        elif tag in ("ul", "ol"):
            self._list_depth = max(0, self._list_depth - 1)
        elif tag == "code" and not self._pre_depth:
            self._append_text("`")
        if tag in _BLOCK_TAGS:
            self._end_link()
            self._break_line()

    def handle_data(self, data: str) -> None:
        if self._skipped_element is not None:
            return
        if self._in_title:
            self.title += data
        elif self._pre_depth:
            self._append_text(data)
        else:
            text = _WHITESPACE_PATTERN.sub(" ", data)
            if text.startswith(" ") and self._is_at_start():
                text = text[1:]
            self._append_text(text)

    # Output.

    def text(self) -> str:
        """Return the text so far, without consecutive empty lines."""
        self._end_link()
        lines = (line.rstrip() for line in "".join(self._parts).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")

    def _open_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "title" and not self.title:
            self._in_title = True
        elif tag == "base" and attributes.get("href"):
            self._base_url = _resolve_link(self._base_url, attributes["href"]) or self._base_url
        elif tag[0] == "h" and tag[1:].isdigit():
            self._append_text(f"\n{'#' * int(tag[1:])} ")
        elif tag == "li":
            self._append_text("  " * max(0, self._list_depth - 1) + "- ")
        elif tag in ("ul", "ol"):
            self._list_depth += 1
        elif tag in ("td", "th"):
            self._append_text("" if self._is_at_start() else " | ")
        elif tag == "br":
            self._append_text("\n")
        elif tag == "hr":
            self._append_text("---\n")
        elif tag == "pre":
            self._append_text("```\n" if not self._pre_depth else "")
            self._pre_depth += 1
        elif tag == "p":
            self._append_text("" if self._is_at_start(after_list=True) else "\n")
        elif tag == "code" and not self._pre_depth:
            self._append_text("`")
        elif tag == "img" and attributes.get("alt", "").strip():
            self._append_text(_WHITESPACE_PATTERN.sub(" ", attributes["alt"]))
        elif tag == "a":
            self._begin_link(attributes.get("href", ""))

    def _begin_link(self, href: str) -> None:
        self._end_link()
        target = _resolve_link(self._base_url, href) if href and not href.startswith("#") else None
        if target is not None:
            self._pending_link = (target, len(self._parts))

    def _end_link(self) -> None:
        if self._pending_link is None:
            return
        target, at = self._pending_link
        self._pending_link = None
        link_text = _WHITESPACE_PATTERN.sub(" ", "".join(self._parts[at:])).strip()
        if link_text:
            del self._parts[at:]
            self._append_text(f"[{link_text}]({target})")

    def _skip_start_tag(self, tag: str) -> bool:
        if self._skipped_element is None:
            return False
        name, depth = self._skipped_element
        if name == tag == "p":
            # In HTML, a new paragraph closes the previous one even without an end tag.
            self._skipped_element = None
            return False
        if tag == name:
            self._skipped_element = (name, depth + 1)
        return True

    def _is_at_start(self, *, after_list: bool = False) -> bool:
        last = self._parts[-1] if self._parts else "\n"
        return last.endswith(("\n", " ")) if not after_list else last.endswith("- ")

    def _break_line(self) -> None:
        if self._parts and not self._parts[-1].endswith(("\n", "- ")):
            self._append_text("\n")

    def _append_text(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._text_length += len(text)
            if self._text_length > _MAX_TEXT_CHARACTERS:
                raise _TextLimitReached


def _is_hidden(attributes: dict[str, str]) -> bool:
    style = attributes.get("style", "").replace(" ", "").lower()
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or _HIDDEN_STYLE_PATTERN.search(style) is not None
    )


def _resolve_link(base: str, href: str) -> str | None:
    """Return the target of a link; None if it is not a web page."""
    try:
        target = urljoin(base, href.strip())
    except ValueError:
        return None
    is_usable = target.lower().startswith(("http://", "https://")) and not re.search(
        r"[\s()<>\x00-\x1f]", target
    )
    return target[:2000] if is_usable else None


def extract_page_text(page: str, url: str) -> tuple[str, str]:
    """Return the title and the text of a page."""
    parser = _PageTextParser(url)
    try:
        parser.feed(page)
        parser.close()
    except (_TextLimitReached, AssertionError):
        pass  # Use the text so far; html.parser asserts on some malformed input.
    return _WHITESPACE_PATTERN.sub(" ", parser.title).strip(), parser.text()


def main() -> None:
    """Serve the parent process: ``page`` and ``address`` are the input, ``title`` and ``text`` the output."""

    def handle_message(message: bytes) -> bytes:
        request = json.loads(message)
        title, text = extract_page_text(request["page"], request["address"])
        return json.dumps({"title": title, "text": text}).encode()

    serve_requests(handle_message)
