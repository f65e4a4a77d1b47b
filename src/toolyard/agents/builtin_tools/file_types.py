"""What is in a file, told by its first bytes."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

__all__ = ["HEAD_BYTES", "FileType", "detect_file_type"]

HEAD_BYTES = 8192
"""How many bytes tell."""


@dataclass(frozen=True, slots=True)
class FileType:
    """What a file is. ``picture`` is a media type that models can see; ``encoding`` is that of a text."""

    words: str
    image_mime_type: str | None = None
    encoding: str | None = None


_TEXT_BOMS = (
    (codecs.BOM_UTF8, FileType("text", encoding="utf-8-sig")),
    (codecs.BOM_UTF32_LE, FileType("text", encoding="utf-32")),
    (codecs.BOM_UTF32_BE, FileType("text", encoding="utf-32")),
    (codecs.BOM_UTF16_LE, FileType("text", encoding="utf-16")),
    (codecs.BOM_UTF16_BE, FileType("text", encoding="utf-16")),
)
_MAGIC_NUMBERS = (
    (b"\x89PNG\r\n\x1a\n", FileType("a PNG picture", "image/png")),
    (b"\xff\xd8\xff", FileType("a JPEG picture", "image/jpeg")),
    (b"GIF87a", FileType("a GIF picture", "image/gif")),
    (b"GIF89a", FileType("a GIF picture", "image/gif")),
    (b"%PDF-", FileType("a PDF document")),
    (b"PK\x03\x04", FileType("a ZIP archive, or a document that is one")),
    (b"PK\x05\x06", FileType("a ZIP archive")),
    (b"\x1f\x8b", FileType("a gzip archive")),
    (b"BZh", FileType("a bzip2 archive")),
    (b"\xfd7zXZ\x00", FileType("an xz archive")),
    (b"\x28\xb5\x2f\xfd", FileType("a zstd archive")),
    (b"7z\xbc\xaf\x27\x1c", FileType("a 7z archive")),
    (b"\x7fELF", FileType("a program (ELF)")),
    (b"MZ", FileType("a Windows program")),
    (b"\xcf\xfa\xed\xfe", FileType("a program (Mach-O)")),
    (b"\xca\xfe\xba\xbe", FileType("a Java class, or a program")),
    (b"\x00asm", FileType("a WebAssembly module")),
    (b"SQLite format 3\x00", FileType("an SQLite database")),
    (b"OggS", FileType("a sound or film (Ogg)")),
    (b"ID3", FileType("a sound (MP3)")),
    (b"fLaC", FileType("a sound (FLAC)")),
    (b"\x1aE\xdf\xa3", FileType("a film (Matroska or WebM)")),
    (b"wOFF", FileType("a font")),
    (b"wOF2", FileType("a font")),
    (b"!<arch>\n", FileType("an archive (ar)")),
)
_RIFF_TYPES = {
    b"WEBP": FileType("a WebP picture", "image/webp"),
    b"WAVE": FileType("a sound (WAV)"),
    b"AVI ": FileType("a film (AVI)"),
}
_AMBIGUOUS_MAGIC_NUMBERS = frozenset({b"MZ", b"BZh", b"ID3", b"PK\x05\x06"})
"""Texts begin with these too: they tell only where what follows is no text."""
_BINARY_TYPE = FileType("binary data")
_UTF8_TEXT_TYPE = FileType("text", encoding="utf-8")


def detect_file_type(head: bytes) -> FileType:
    """What a file is that begins with these bytes. Without a sign of anything else it is text."""
    binary = b"\0" in head
    for mark, kind in _TEXT_BOMS:
        if head.startswith(mark):
            return kind
    if head.startswith(b"RIFF") and (found := _RIFF_TYPES.get(head[8:12])) is not None:
        return found
    if head[4:8] == b"ftyp":
        return FileType("a film or picture (MP4 or HEIF)")
    for mark, kind in _MAGIC_NUMBERS:
        if head.startswith(mark) and (binary or mark not in _AMBIGUOUS_MAGIC_NUMBERS):
            return kind
    return _BINARY_TYPE if binary else _UTF8_TEXT_TYPE
