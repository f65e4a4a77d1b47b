"""From the bytes of a page to its text, in the encoding that it says it is in."""

from __future__ import annotations

import codecs
import re

__all__ = ["decode_body"]

_DECLARED_CHARSET_PATTERN = re.compile(
    rb"""<(?:meta[^>]{0,512}?charset|\?xml[^>]{0,200}?encoding)\s*=\s*["']?\s*([\w.:-]{1,40})""",
    re.IGNORECASE,
)
_CHARSET_SCAN_BYTES = 2048
_WEB_ENCODING_NAMES = """
utf-8 utf-16 utf-16le utf-16be cp866 iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8
iso8859-10 iso8859-13 iso8859-14 iso8859-15 iso8859-16 koi8-r koi8-u mac-roman mac-cyrillic cp874 cp1250
cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 gbk gb18030 big5 euc-jp iso2022-jp shift-jis euc-kr
"""
_WEB_ENCODINGS = frozenset(codecs.lookup(name).name for name in _WEB_ENCODING_NAMES.split())
"""Python knows more, some of which are no texts, and some take for ever."""
_LATIN1_ENCODINGS = frozenset({"ascii", "iso8859-1"})
"""Who says one of these means Windows' one, as browsers have it."""


def decode_body(body: bytes, header_charset: str | None) -> str:
    """The text of a body. A mark at its beginning counts most, then the header's word, then the page's own;
    what nobody knows is read as UTF-8 where it is that, and as Windows Latin where it is not."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if body.startswith(mark):
            return body.decode(name, "replace")
    found = _DECLARED_CHARSET_PATTERN.search(body[:_CHARSET_SCAN_BYTES])
    own = found[1].decode("ascii", "replace") if found is not None else None
    for name in (header_charset, own):
        known = None if name is None else _lookup_encoding(name)
        if known is not None:
            return body.decode(known, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        # A page that was cut may end in the middle of a character.
        whole = error.reason == "unexpected end of data"
        return body.decode("utf-8" if whole else "cp1252", "replace")


def _lookup_encoding(name: str) -> str | None:
    try:
        found = codecs.lookup(name.strip().strip("\"'")).name
    except (LookupError, ValueError):
        return None
    if found in _LATIN1_ENCODINGS:
        return "cp1252"
    return found if found in _WEB_ENCODINGS else None
