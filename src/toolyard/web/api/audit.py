"""``/audit``: the audit log, for admins."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import Query
from fastapi.responses import StreamingResponse
from pydantic import Field

from toolyard.store.repositories.audit import SqlAuditLog
from toolyard.types.audit import AuditEntry
from toolyard.types.visible_text import escape_formulas
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api

__all__ = ["export_person_entries", "router"]

router = api.ApiRoutes(prefix="/audit", tags=["audit"])

_CONTENT_TYPE_BY_FORMAT = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
_ENTRIES_PER_PAGE = 500
_CSV_COLUMNS = ("id", "at", "action", "actor", "actor_name", "target", "outcome", "address", "details")


class AuditEntryResponse(api.ApiModel, schema="AuditShown"):
    """An entry of the audit log."""

    id: int
    at: datetime
    action: str = Field(examples=["server.add"])
    actor: str = Field(description="Id of the user; empty if nobody was signed in.")
    actor_name: str
    target: str
    outcome: str
    address: str
    details: dict[str, Any]


class AuditPage(api.ItemList[AuditEntryResponse]):
    """Entries, newest first."""

    next_before: int | None = Field(description="Value of `before` for the next page; null on the last page.")


@router.get(
    "",
    summary="List audit entries",
)
async def list_audit(
    audit_log: deps.AuditLogDep,
    request_user: deps.AdminUser,
    before: Annotated[
        int | None, Query(ge=1, le=2**62, description="Return entries older than this id.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    action: Annotated[str | None, Query(max_length=100)] = None,
    actor: Annotated[str | None, Query(max_length=500, description="Id of a user.")] = None,
) -> AuditPage:
    """Return sign-ins, changes and tool calls, newest first."""
    entries = await audit_log.entries(before=before, limit=limit + 1, action=action, actor=actor)
    # One entry more than the limit was read, to know whether there is a next page.
    more = len(entries) > limit
    shown = [AuditEntryResponse.of(each) for each in entries[:limit]]
    return AuditPage(items=shown, next_before=shown[-1].id if more else None)


@router.get(
    "/export",
    responses={
        200: {
            "description": "All entries, oldest first.",
            "content": {
                "application/x-ndjson": {"schema": {"type": "string"}},
                "text/csv": {"schema": {"type": "string"}},
            },
        },
    },
    response_class=StreamingResponse,
    summary="Export the audit log",
    media_types=["application/x-ndjson", "text/csv"],
)
async def export_audit(
    audit: deps.AuditDep,
    audit_log: deps.AuditLogDep,
    request_user: deps.AdminUser,
    form: Annotated[Literal["jsonl", "csv"], Query(alias="format")] = "jsonl",
) -> StreamingResponse:
    """Stream all entries, oldest first, as one JSON object per line or as CSV."""
    await audit.record_change(request_user, "audit.export", form)
    # The response begins before its first entry is read, and could not report an error of the database.
    await audit_log.entries(before=None, limit=1, action=None, actor=None)
    entries = audit_log.export()
    lines = _export_csv(entries) if form == "csv" else _export_jsonl(entries)
    headers = {"Content-Disposition": f'attachment; filename="toolyard-audit.{form}"'}
    return StreamingResponse(lines, media_type=_CONTENT_TYPE_BY_FORMAT[form], headers=headers)


async def _export_jsonl(entries: AsyncIterator[AuditEntry]) -> AsyncGenerator[bytes]:
    async for each in entries:
        yield _encode_line(each)


async def export_person_entries(audit_log: SqlAuditLog, person: str) -> AsyncGenerator[bytes]:
    """Yield the entries of one person's actions as JSON lines, newest first."""
    before: int | None = None
    while page := await audit_log.entries(before=before, limit=_ENTRIES_PER_PAGE, action=None, actor=person):
        for each in page:
            yield _encode_line(each)
        before = page[-1].id


def _encode_line(entry: AuditEntry) -> bytes:
    return orjson.dumps(
        AuditEntryResponse.of(entry).model_dump(mode="json"), option=orjson.OPT_APPEND_NEWLINE
    )


async def _export_csv(entries: AsyncIterator[AuditEntry]) -> AsyncGenerator[str]:
    yield _format_csv_row(_CSV_COLUMNS)
    async for each in entries:
        shown = AuditEntryResponse.of(each).model_dump(mode="json")
        shown["details"] = orjson.dumps(shown["details"]).decode()
        # Names are chosen by users.
        cells = [
            escape_formulas(cell) if isinstance(cell := shown[name], str) else cell for name in _CSV_COLUMNS
        ]
        yield _format_csv_row(cells)


def _format_csv_row(cells: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()
