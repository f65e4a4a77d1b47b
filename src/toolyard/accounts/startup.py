"""Before anything is served: do the settings about people fit together, and who is there to begin with?"""

from __future__ import annotations

from toolyard.accounts.errors import StartRefused
from toolyard.accounts.proxy_addresses import TrustedProxies, is_loopback
from toolyard.accounts.service import AccountService
from toolyard.accounts.user_names import candidate_names
from toolyard.config.settings.choices import PeopleMode
from toolyard.config.settings.table import Settings
from toolyard.config.value_checks import header_name_fault
from toolyard.types.account import Role

__all__ = ["build_invite_link", "check_startup_settings", "create_first_admin_link", "public_base_url"]

_FIRST_ADMIN_NAME = "admin"


def check_startup_settings(settings: Settings, host: str) -> tuple[str, ...]:
    """What is worth a warning. Raises StartRefused where nothing must be served with these settings."""
    TrustedProxies(settings.trusted_proxies)
    match settings.people_mode:
        case PeopleMode.NONE:
            if not is_loopback(host):
                raise StartRefused(
                    f"in the mode none everybody who reaches {host} would be the local user, who is an admin",
                    hint="listen on 127.0.0.1, or set people_mode to password, proxy or oidc",
                )
            return ()
        case PeopleMode.PASSWORD:
            return ()
        case PeopleMode.PROXY:
            _check_proxy_mode(settings)
        case PeopleMode.OIDC:
            _check_oidc_mode(settings)
    return _warn_without_admins(settings)


def public_base_url(settings: Settings) -> str:
    """Where people reach this deployment, as far as the settings tell."""
    if settings.public_url is not None:
        return settings.public_url
    host = "localhost" if settings.host in ("0.0.0.0", "::") else settings.host
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def build_invite_link(base_url: str, text: str) -> str:
    """The link for somebody who was invited."""
    return f"{base_url}/ui/invite/{text}"


async def create_first_admin_link(people: AccountService, settings: Settings, base_url: str) -> str | None:
    """In the mode password, where no admin could sign in: a link with which one can, once, for a day."""
    if settings.people_mode is not PeopleMode.PASSWORD or await people.has_admin():
        return None
    for name in candidate_names(_FIRST_ADMIN_NAME):
        user = await people.find_user(name)
        # Somebody else who is called so does not become an admin by it.
        if user is None or (user.role is Role.ADMIN and not user.disabled):
            return build_invite_link(base_url, await people.invite(name, Role.ADMIN))
    return None


def _check_proxy_mode(settings: Settings) -> None:
    if not settings.trusted_proxies:
        raise StartRefused(
            f"in the mode proxy everybody could send {settings.proxy_header} and be whoever they like",
            hint="set trusted_proxies to the addresses of your proxy",
        )
    if header_name_fault(settings.proxy_header) is not None:
        raise StartRefused(f"proxy_header: '{settings.proxy_header}' is no name of a header")


def _check_oidc_mode(settings: Settings) -> None:
    names = ("oidc_issuer", "oidc_client_id")
    missing = [name for name in names if getattr(settings, name) is None]
    if missing:
        raise StartRefused(
            f"the mode oidc needs {' and '.join(missing)}",
            hint="register Toolyard at your identity provider, with the redirect address "
            f"{public_base_url(settings)}/ui/oidc/callback, and set what it gives you",
        )


def _warn_without_admins(settings: Settings) -> tuple[str, ...]:
    if settings.admins:
        return ()
    return (f"nobody is an admin, since in the mode {settings.people_mode} the setting admins names them",)
