"""Checks of the account settings before the server starts, and the invite link of the first admin."""

from __future__ import annotations

from toolyard.accounts.errors import StartRefused
from toolyard.accounts.provisioning import candidate_names
from toolyard.accounts.proxy_addresses import TrustedProxies, is_loopback
from toolyard.accounts.service import AccountService
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.config.value_checks import header_name_fault
from toolyard.types.account import Role

__all__ = ["build_invite_link", "check_startup_settings", "create_first_admin_link", "public_base_url"]

_FIRST_ADMIN_NAME = "admin"


def check_startup_settings(settings: Settings, host: str) -> tuple[str, ...]:
    """Return warnings about the settings. Raises StartRefused if serving with them would be unsafe."""
    TrustedProxies(settings.trusted_proxies)
    match settings.people_mode:
        case PeopleMode.NONE:
            if not is_loopback(host):
                raise StartRefused(
                    f"with people_mode none, anyone who can reach {host} would be the local admin",
                    hint="listen on 127.0.0.1, or set people_mode to password, proxy or oidc",
                )
            return ()
        case PeopleMode.PASSWORD:
            return ()
        case PeopleMode.PROXY:
            _check_proxy_mode(settings)
        case PeopleMode.OIDC:
            _check_oidc_mode(settings)
    if settings.admins:
        return ()
    mode = settings.people_mode
    return (f"no admins are configured: with people_mode {mode}, list them in the setting admins",)


def public_base_url(settings: Settings) -> str:
    """Return the base URL of this deployment for its users, derived from the settings."""
    if settings.public_url is not None:
        return settings.public_url
    host = "localhost" if settings.host in ("0.0.0.0", "::") else settings.host
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def build_invite_link(base_url: str, text: str) -> str:
    """Return the URL of an invite link."""
    return f"{base_url}/ui/invite/{text}"


async def create_first_admin_link(accounts: AccountService, settings: Settings, base_url: str) -> str | None:
    """Return an invite link for an admin, in password mode while no admin can sign in; else None."""
    if settings.people_mode is not PeopleMode.PASSWORD or await accounts.has_admin():
        return None
    for name in candidate_names(_FIRST_ADMIN_NAME):
        user = await accounts.find_user(name)
        # An ordinary user who happens to have this name must not become an admin.
        if user is None or (user.role is Role.ADMIN and not user.disabled):
            return build_invite_link(base_url, await accounts.invite(name, Role.ADMIN))
    return None


def _check_proxy_mode(settings: Settings) -> None:
    if not settings.trusted_proxies:
        raise StartRefused(
            f"with people_mode proxy and no trusted_proxies, anyone could send {settings.proxy_header} and"
            " impersonate any user",
            hint="set trusted_proxies to the addresses of your proxy",
        )
    if header_name_fault(settings.proxy_header) is not None:
        raise StartRefused(f"proxy_header: '{settings.proxy_header}' is not a valid header name")


def _check_oidc_mode(settings: Settings) -> None:
    names = ("oidc_issuer", "oidc_client_id")
    missing = [name for name in names if getattr(settings, name) is None]
    if missing:
        raise StartRefused(
            f"people_mode oidc requires {' and '.join(missing)}",
            hint="register Toolyard at your identity provider, with the redirect URI "
            f"{public_base_url(settings)}/ui/oidc/callback, and enter the values it gives you",
        )
