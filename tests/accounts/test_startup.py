"""Contradictory account settings are refused before anything is served."""

from __future__ import annotations

from typing import Any

import pytest

from toolyard.accounts.errors import StartRefused
from toolyard.accounts.startup import check_startup_settings, public_base_url
from toolyard.config.settings.table import PeopleMode, Settings

OIDC: dict[str, Any] = {"oidc_issuer": "https://id.example", "oidc_client_id": "toolyard"}


def _settings(mode: str, **more: Any) -> Settings:
    return Settings(people_mode=PeopleMode(mode), **more)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_the_mode_none_listens_on_loopback(host: str) -> None:
    assert check_startup_settings(_settings("none"), host) == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "toolyard.lan", ""])
def test_the_mode_none_listens_nowhere_else(host: str) -> None:
    with pytest.raises(StartRefused) as exc_info:
        check_startup_settings(_settings("none"), host)
    assert "people_mode" in (exc_info.value.hint or "")
    assert exc_info.value.exit_code == 2


@pytest.mark.parametrize(
    ("settings", "missing_setting"),
    [
        (_settings("proxy"), "trusted_proxies"),
        (_settings("proxy", trusted_proxies=("everywhere",)), "trusted_proxies"),
        (_settings("proxy", trusted_proxies=("10.0.0.1",), proxy_header="Remote User"), "proxy_header"),
        (_settings("password", trusted_proxies=("x",)), "trusted_proxies"),
        (_settings("oidc"), "oidc_issuer and oidc_client_id"),
        (_settings("oidc", oidc_issuer="https://id.example"), "oidc_client_id"),
        (_settings("oidc", oidc_client_id="x"), "oidc_issuer"),
    ],
)
def test_missing_settings_are_named(settings: Settings, missing_setting: str) -> None:
    with pytest.raises(StartRefused) as exc_info:
        check_startup_settings(settings, "0.0.0.0")
    assert missing_setting in str(exc_info.value)


@pytest.mark.parametrize(
    "settings",
    [
        _settings("password"),
        _settings("proxy", trusted_proxies=("10.0.0.1",), admins=("ann",)),
        _settings("oidc", **OIDC, admins=("1",)),
    ],
)
def test_the_other_modes_listen_everywhere(settings: Settings) -> None:
    assert check_startup_settings(settings, "0.0.0.0") == ()


def test_a_deployment_without_admins_causes_a_warning() -> None:
    for settings in (_settings("proxy", trusted_proxies=("::1",)), _settings("oidc", **OIDC)):
        assert "admins" in check_startup_settings(settings, "0.0.0.0")[0]


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        (_settings("password"), "http://127.0.0.1:8420"),
        (_settings("password", host="::1", port=1), "http://[::1]:1"),
        (_settings("password", host="0.0.0.0"), "http://localhost:8420"),
        (_settings("password", public_url="https://t.example"), "https://t.example"),
    ],
)
def test_where_people_reach_us(settings: Settings, address: str) -> None:
    assert public_base_url(settings) == address
