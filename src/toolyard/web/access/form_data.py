"""Parsing of submitted forms, whose texts are limited as a whole."""

from __future__ import annotations

import asyncio
from functools import partial
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from toolyard.web.middleware.request_body import MAX_FORM_FIELDS, get_body_limit, get_file_limit

__all__ = ["parse_form"]

_THREAD_MIN_BYTES = 64 * 1024
"""Size from which on a form is decoded in a thread: two megabytes of escapes take 300 ms."""
_parse_fields = partial(parse_qsl, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)


class _FormParser(MultiPartParser):
    """Parser of forms with files. The texts of fields and headers are in memory, the files are not."""

    _text_bytes = 0

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._current_part.file is None:
            self._count_text(end - start)
        super().on_part_data(data, start, end)

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._count_text(end - start)
        super().on_header_value(data, start, end)

    def _count_text(self, count: int) -> None:
        self._text_bytes += count
        if self._text_bytes > self.max_part_size:
            raise HTTPException(413, f"the texts of this form may have at most {self.max_part_size:,} bytes")


async def parse_form(request: Request) -> FormData:
    """Return the form of a request, which is parsed once. Raises HTTPException if it exceeds a limit."""
    form: FormData | None = getattr(request.state, "form", None)
    if form is None:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        form = FormData()
        if kind == "multipart/form-data":
            form = await _parse_multipart(request)
        elif kind == "application/x-www-form-urlencoded":
            text = (await request.body()).decode("latin-1")
            try:
                is_short = len(text) < _THREAD_MIN_BYTES
                pairs = _parse_fields(text) if is_short else await asyncio.to_thread(_parse_fields, text)
            except ValueError:
                raise HTTPException(400, f"a form may have at most {MAX_FORM_FIELDS:,} fields") from None
            form = FormData([*pairs])
        request.state.form = form
    return form


async def _parse_multipart(request: Request) -> FormData:
    path = request.url.path
    parser = _FormParser(
        request.headers,
        request.stream(),
        max_files=get_file_limit(path),
        max_fields=MAX_FORM_FIELDS,
        max_part_size=get_body_limit(path),
    )
    try:
        return await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, error.message) from None
