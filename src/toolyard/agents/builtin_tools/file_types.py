"""What is in a file, told by its first bytes."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

__all__ = ["HEAD", "Kind", "kind_of"]

HEAD = 8192
"""How many bytes tell."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file is. ``picture`` is a media type that models can see; ``encoding`` is that of a text."""

    words: str
    picture: str | None = None
    encoding: str | None = None


_TEXTS = (
    (codecs.BOM_UTF8, Kind("text", encoding="utf-8-sig")),
    (codecs.BOM_UTF32_LE, Kind("text", encoding="utf-32")),
    (codecs.BOM_UTF32_BE, Kind("text", encoding="utf-32")),
    (codecs.BOM_UTF16_LE, Kind("text", encoding="utf-16")),
    (codecs.BOM_UTF16_BE, Kind("text", encoding="utf-16")),
)
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", Kind("a PNG picture", "image/png")),
    (b"\xff\xd8\xff", Kind("a JPEG picture", "image/jpeg")),
    (b"GIF87a", Kind("a GIF picture", "image/gif")),
    (b"GIF89a", Kind("a GIF picture", "image/gif")),
    (b"%PDF-", Kind("a PDF document")),
    (b"PK\x03\x04", Kind("a ZIP archive, or a document that is one")),
    (b"PK\x05\x06", Kind("a ZIP archive")),
    (b"\x1f\x8b", Kind("a gzip archive")),
    (b"BZh", Kind("a bzip2 archive")),
    (b"\xfd7zXZ\x00", Kind("an xz archive")),
    (b"\x28\xb5\x2f\xfd", Kind("a zstd archive")),
    (b"7z\xbc\xaf\x27\x1c", Kind("a 7z archive")),
    (b"\x7fELF", Kind("a program (ELF)")),
    (b"MZ", Kind("a Windows program")),
    (b"\xcf\xfa\xed\xfe", Kind("a program (Mach-O)")),
    (b"\xca\xfe\xba\xbe", Kind("a Java class, or a program")),
    (b"\x00asm", Kind("a WebAssembly module")),
    (b"SQLite format 3\x00", Kind("an SQLite database")),
    (b"OggS", Kind("a sound or film (Ogg)")),
    (b"ID3", Kind("a sound (MP3)")),
    (b"fLaC", Kind("a sound (FLAC)")),
    (b"\x1aE\xdf\xa3", Kind("a film (Matroska or WebM)")),
    (b"wOFF", Kind("a font")),
    (b"wOF2", Kind("a font")),
    (b"!<arch>\n", Kind("an archive (ar)")),
)
_RIFF = {
    b"WEBP": Kind("a WebP picture", "image/webp"),
    b"WAVE": Kind("a sound (WAV)"),
    b"AVI ": Kind("a film (AVI)"),
}
_SHORT = frozenset({b"MZ", b"BZh", b"ID3", b"PK\x05\x06"})
"""Texts begin with these too: they tell only where what follows is no text."""
_UNKNOWN = Kind("binary data")
_TEXT = Kind("text", encoding="utf-8")


def kind_of(head: bytes) -> Kind:
    """What a file is that begins with these bytes. Without a sign of anything else it is text."""
    binary = b"\0" in head
    for mark, kind in _TEXTS:
        if head.startswith(mark):
            return kind
    if head.startswith(b"RIFF") and (found := _RIFF.get(head[8:12])) is not None:
        return found
    if head[4:8] == b"ftyp":
        return Kind("a film or picture (MP4 or HEIF)")
    for mark, kind in _MAGIC:
        if head.startswith(mark) and (binary or mark not in _SHORT):
            return kind
    return _UNKNOWN if binary else _TEXT
