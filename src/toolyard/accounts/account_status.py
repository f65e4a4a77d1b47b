"""Whether an account counts in this mode, and as what. Settings decide anew at every request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from toolyard.config.settings.choices import PeopleMode
from toolyard.config.settings.table import Settings
from toolyard.types.account import Role, User
from toolyard.types.principal import LOCAL_PRINCIPAL

__all__ = ["Identity", "effective_role", "resolve_effective_user"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody as the identity provider names them. ``issuer`` and ``sub`` are who it is; the rest is
    decoration, except an email address that the provider says it has verified."""

    issuer: str
    sub: str
    name: str
    verified_email: str | None = None

    @property
    def subject(self) -> str:
        """Under which the account is kept."""
        return f"{self.issuer}|{self.sub}"


def resolve_effective_user(user: User, settings: Settings) -> User | None:
    """The user with the role that the settings give; None where this account has no place in this mode.

    Accounts outlive a change of mode. One that was made without a proof, or with another one, opens nothing.
    """
    if not _is_valid_in_mode(user, settings):
        return None
    return replace(user, role=effective_role(user, settings))


def effective_role(user: User, settings: Settings) -> Role:
    """Return the role that an account has under these settings.

    In the modes proxy and oidc the setting ``admins`` alone decides, and nothing that it decided is stored:
    an admin who is removed from it is none at the next request, with a session or a token. In the mode
    password the stored role counts, which an admin or a command granted.
    """
    match settings.people_mode:
        case PeopleMode.NONE:
            is_admin = user.id == LOCAL_PRINCIPAL.id
        case PeopleMode.PASSWORD:
            return user.role
        case PeopleMode.PROXY:
            # The name as the proxy sends it, letter by letter.
            is_admin = user.subject is None and user.id != LOCAL_PRINCIPAL.id and user.name in settings.admins
        case PeopleMode.OIDC:
            is_admin = _is_from_issuer(user, settings) and _is_admin_at_provider(user, settings.admins)
    return Role.ADMIN if is_admin else Role.USER


def _is_valid_in_mode(user: User, settings: Settings) -> bool:
    match settings.people_mode:
        case PeopleMode.NONE:
            return user.id == LOCAL_PRINCIPAL.id
        case PeopleMode.PASSWORD:
            return user.has_password and user.id != LOCAL_PRINCIPAL.id
        case PeopleMode.PROXY:
            return user.id != LOCAL_PRINCIPAL.id and user.subject is None
        case PeopleMode.OIDC:
            return _is_from_issuer(user, settings)


def _is_from_issuer(user: User, settings: Settings) -> bool:
    issuer, _, sub = (user.subject or "").partition("|")
    return bool(sub) and issuer.rstrip("/") == settings.oidc_issuer


def _is_admin_at_provider(user: User, admins: Iterable[str]) -> bool:
    """Decide by the ``sub`` and the verified email address, which people cannot choose for themselves.

    ``preferred_username`` never makes an admin: OpenID Connect promises nothing about it, and many providers
    let people change it at will.
    """
    sub = (user.subject or "").partition("|")[2]
    email = user.verified_email
    return any(entry == sub or (email and entry.casefold() == email) for entry in admins)
