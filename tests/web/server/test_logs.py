"""The log of the server: nobody can flood it."""

from __future__ import annotations

import io
import logging

from toolyard.web.http_server.logs import WarningThrottle


def test_warnings_that_differ_in_their_arguments_only_are_limited_per_minute_and_errors_are_not() -> None:
    now, written = 0.0, io.StringIO()
    handler, log = logging.StreamHandler(written), logging.Logger("toolyard.test")
    handler.addFilter(WarningThrottle(max_per_interval=3, interval_seconds=60, clock=lambda: now))
    log.addHandler(handler)
    for number in range(10):
        log.warning("the request %s is refused", number)
        log.error("unexpected error %d", number)
    log.warning("something else is wrong")
    lines = written.getvalue().splitlines()
    assert [line for line in lines if "refused" in line] == [f"the request {n} is refused" for n in range(3)]
    assert sum("unexpected" in line for line in lines) == 10
    assert lines[-1] == "something else is wrong"
    now = 60.0
    log.warning("the request %s is refused", "100%")
    log.warning("the request %s is refused", "last")
    assert written.getvalue().splitlines()[-2:] == [
        "the request 100% is refused (7 more were not logged)",
        "the request last is refused",
    ]
