"""Liveness, readiness and metrics endpoints for operators."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Depends, Request, Response
from fastapi.responses import PlainTextResponse

from toolyard.accounts.errors import NotAllowed
from toolyard.config.settings.table import PeopleMode
from toolyard.errors import ToolyardError
from toolyard.store.errors import WrongKey
from toolyard.types.account import Right
from toolyard.web.access.authentication import RequestUser, require_right
from toolyard.web.http_server.metrics import METRICS_CONTENT_TYPE
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import AuditDep, DatabaseDep, MetricsDep, SettingsDep, StopSignalDep

__all__ = ["router"]

router = Routes(include_in_schema=False)

_DATABASE_TIMEOUT_SECONDS = 5.0
"""Maximum time for the database to answer, in seconds. A hanging database would not answer at all."""


@router.route("/healthz", methods=["GET", "HEAD"])
async def check_liveness() -> Response:
    """Report that the process is running."""
    return PlainTextResponse("ok\n")


@router.route("/readyz", methods=["GET", "HEAD"])
async def check_readiness(
    request: Request, audit: AuditDep, database: DatabaseDep, stop_signal: StopSignalDep
) -> Response:
    """Report whether requests can be served: not stopping, database and audit log available."""
    if stop_signal.is_set():
        return PlainTextResponse("stopping\n", 503)
    try:
        async with asyncio.timeout(_DATABASE_TIMEOUT_SECONDS):
            await database.ping()
    except WrongKey:
        return PlainTextResponse(
            "the database uses another secret key than this process: "
            "restart it with the current TOOLYARD_SECRET_KEY (the log has the details)\n",
            503,
        )
    except (ToolyardError, TimeoutError):
        # The endpoint is public, so the details are only in the log.
        return PlainTextResponse("the database is not responding\n", 503)
    if audit.is_failing:
        return PlainTextResponse("the audit log cannot be written\n", 503)
    return PlainTextResponse("ready\n")


@router.get("/metrics")
async def show_metrics(
    request: Request,
    request_user: Annotated[RequestUser, Depends(require_right(Right.READ))],
    settings: SettingsDep,
    metrics: MetricsDep,
) -> Response:
    """Return metrics for Prometheus. Requires an admin's session or token with the right ``read``."""
    if not request_user.is_admin and settings.people_mode is not PeopleMode.NONE:
        raise NotAllowed("only admins may read the metrics")
    return Response(metrics.render(), media_type=METRICS_CONTENT_TYPE)
