"""Is it alive, is it ready, and how is it doing: for whoever runs it."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse

from toolyard.accounts.errors import NotAllowed
from toolyard.config.settings.choices import PeopleMode
from toolyard.errors import ToolyardError
from toolyard.types.account import Right
from toolyard.web.access.dependencies import RequestUser, require_right
from toolyard.web.server.metrics import METRICS_CONTENT_TYPE
from toolyard.web.services import Services

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_DATABASE_TIMEOUT_SECONDS = 5.0
"""Seconds that the database has to answer. One that hangs says nothing at all."""


@router.api_route("/healthz", methods=["GET", "HEAD"])
async def check_liveness() -> Response:
    """The process answers."""
    return PlainTextResponse("ok\n")


@router.api_route("/readyz", methods=["GET", "HEAD"])
async def check_readiness(request: Request) -> Response:
    """The database answers, and nobody has asked us to stop."""
    site: Services = request.app.state.site
    if site.is_stopping:
        return PlainTextResponse("stopping\n", 503)
    try:
        async with asyncio.timeout(_DATABASE_TIMEOUT_SECONDS):
            await site.database.ping()
    except (ToolyardError, TimeoutError):
        # What exactly is wrong is in the log: anyone may ask here.
        return PlainTextResponse("the database does not answer\n", 503)
    if site.is_audit_failing:
        return PlainTextResponse("the audit log cannot be written\n", 503)
    return PlainTextResponse("ready\n")


@router.get("/metrics")
async def show_metrics(
    request: Request, visitor: Annotated[RequestUser, Depends(require_right(Right.READ))]
) -> Response:
    """Numbers for Prometheus, for admins: by session, or by an admin's token with the right ``read``."""
    site: Services = request.app.state.site
    if not visitor.is_admin and site.settings.people_mode is not PeopleMode.NONE:
        raise NotAllowed("only admins may see these numbers")
    return Response(site.metrics.text(), media_type=METRICS_CONTENT_TYPE)
