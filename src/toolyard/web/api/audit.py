"""``/audit``: what happened, and who did it. For admins."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from toolyard.types.audit import AuditEntry
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AdminUser,
    AppServices,
    problem_responses,
    require_media_types,
    to_datetime,
)

__all__ = ["router"]

router = APIRouter(prefix="/audit", tags=["audit"])

_CONTENT_TYPE_BY_FORMAT = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
_CSV_COLUMNS = ("id", "at", "action", "actor", "actor_name", "target", "outcome", "address", "details")


class AuditShown(BaseModel):
    """One event."""

    id: int
    at: datetime
    action: str = Field(examples=["server.add"])
    actor: str = Field(description="The user's id; empty where nobody was signed in.")
    actor_name: str
    target: str
    outcome: str
    address: str
    details: dict[str, Any]


class AuditPage(BaseModel):
    """Events, the newest first."""

    items: list[AuditShown]
    next_before: int | None = Field(description="Give it as `before` for what is older; null: that was all.")


def _build_entry_model(entry: AuditEntry) -> AuditShown:
    return AuditShown(
        id=entry.id,
        at=to_datetime(entry.at),
        action=entry.action,
        actor=entry.actor,
        actor_name=entry.actor_name,
        target=entry.target,
        outcome=entry.outcome,
        address=entry.address,
        details=dict(entry.details),
    )


@router.get(
    "",
    responses=problem_responses(),
    summary="What happened",
    dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))],
)
async def list_audit(
    site: AppServices,
    visitor: AdminUser,
    before: Annotated[
        int | None, Query(ge=1, le=2**62, description="Only what is older than this id.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    action: Annotated[str | None, Query(max_length=100)] = None,
    actor: Annotated[str | None, Query(max_length=500, description="A user's id.")] = None,
) -> AuditPage:
    """Sign-ins, changes and calls, the newest first."""
    found = await site.audit.entries(before=before, limit=limit + 1, action=action, actor=actor)
    more = len(found) > limit
    shown = [_build_entry_model(each) for each in found[:limit]]
    return AuditPage(items=shown, next_before=shown[-1].id if more else None)


@router.get(
    "/export",
    responses={
        **problem_responses(),
        200: {
            "description": "All events, the oldest first.",
            "content": {
                "application/x-ndjson": {"schema": {"type": "string"}},
                "text/csv": {"schema": {"type": "string"}},
            },
        },
    },
    response_class=StreamingResponse,
    summary="All of it, as a file",
    dependencies=[Depends(require_media_types("application/x-ndjson", "text/csv"))],
)
async def export_audit(
    site: AppServices,
    visitor: AdminUser,
    form: Annotated[Literal["jsonl", "csv"], Query(alias="format")] = "jsonl",
) -> StreamingResponse:
    """All events, the oldest first, as they come from the database: one JSON object a line, or CSV."""
    await site.changed(visitor, "audit.export", form)
    entries = site.audit.export()
    lines = _export_csv(entries) if form == "csv" else _export_jsonl(entries)
    headers = {"Content-Disposition": f'attachment; filename="toolyard-audit.{form}"'}
    return StreamingResponse(lines, media_type=_CONTENT_TYPE_BY_FORMAT[form], headers=headers)


async def _export_jsonl(entries: AsyncIterator[AuditEntry]) -> AsyncGenerator[bytes]:
    async for each in entries:
        yield orjson.dumps(_build_entry_model(each).model_dump(mode="json"), option=orjson.OPT_APPEND_NEWLINE)


async def _export_csv(entries: AsyncIterator[AuditEntry]) -> AsyncGenerator[str]:
    yield _format_csv_row(_CSV_COLUMNS)
    async for each in entries:
        shown = _build_entry_model(each).model_dump(mode="json")
        shown["details"] = orjson.dumps(shown["details"]).decode()
        yield _format_csv_row(tuple(_escape_formula(shown[name]) for name in _CSV_COLUMNS))


def _format_csv_row(cells: tuple[object, ...]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()


def _escape_formula(cell: object) -> object:
    """A table program takes some first characters for a formula, and names come from everybody."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
