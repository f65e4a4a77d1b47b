"""A warning about what fails again and again."""

from __future__ import annotations

import logging

import pytest

from toolyard.store.repositories.audit import RepeatedWarning


def test_it_is_logged_once_and_then_at_growing_intervals(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    caplog.set_level(logging.INFO)
    warning = RepeatedWarning(logging.getLogger("toolyard.test"), lambda: now)
    warning_times: list[float] = []
    while now < 1_000:
        before = len(caplog.records)
        warning.warn("the disk is full")
        if len(caplog.records) > before:
            warning_times.append(now)
        now += 1
    assert warning_times == [0, 60, 180, 420, 900]
    assert caplog.messages[1] == "the disk is full (59 more failures since the last message)"
    warning.clear("the disk has room")
    warning.clear("the disk has room")
    assert caplog.messages.count("the disk has room") == 1
    now += 1_000
    warning.warn("the disk is full")
    assert caplog.messages[-1] == "the disk is full"


def test_a_failure_that_comes_and_goes_is_logged_at_growing_intervals_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    caplog.set_level(logging.INFO)
    warning = RepeatedWarning(logging.getLogger("toolyard.test"), lambda: now)
    while now < 1_000:
        warning.warn("the disk is full")
        warning.clear("the disk has room")
        now += 1
    assert len(caplog.messages) == 10
    assert caplog.messages[:3] == [
        "the disk is full",
        "the disk has room",
        "the disk is full (59 more failures since the last message)",
    ]
