"""Decode the body of a page with its declared encoding."""

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
"""Encodings of the web. Python has others, some of which do not produce text or take very long to decode."""
_LATIN1_ENCODINGS = frozenset({"ascii", "iso8859-1"})
"""Encodings decoded as Windows-1252 instead, as browsers do."""


def decode_body(body: bytes, header_charset: str | None) -> str:
    """Decode a body: by its byte order mark, else the header's charset, else the page's own declaration.

    Without a known encoding it is decoded as UTF-8 if valid, else as Windows-1252.
    """
    for bom, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if body.startswith(bom):
            return body.decode(name, "replace")
    declaration = _DECLARED_CHARSET_PATTERN.search(body[:_CHARSET_SCAN_BYTES])
    declared_charset = declaration[1].decode("ascii", "replace") if declaration is not None else None
    for name in (header_charset, declared_charset):
        encoding = None if name is None else _lookup_encoding(name)
        if encoding is not None:
            return body.decode(encoding, "replace")
    # A truncated page may end in the middle of a character, which only an incremental decoder accepts.
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")
    return body.decode("utf-8", "replace")


def _lookup_encoding(name: str) -> str | None:
    try:
        encoding = codecs.lookup(name.strip().strip("\"'")).name
    except (LookupError, ValueError):
        return None
    if encoding in _LATIN1_ENCODINGS:
        return "cp1252"
    return encoding if encoding in _WEB_ENCODINGS else None
