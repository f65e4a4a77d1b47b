"""Validity and role of an account under the current settings, evaluated at every request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.types.account import LOCAL_PRINCIPAL, Role, User

__all__ = ["Identity", "effective_role", "resolve_effective_user"]


@dataclass(frozen=True, slots=True)
class Identity:
    """A user's identity at the identity provider.

    ``issuer`` and ``sub`` identify the user. ``name`` is for display only; ``verified_email`` is an address
    that the provider has verified.
    """

    issuer: str
    sub: str
    name: str
    verified_email: str | None = None

    @property
    def subject(self) -> str:
        """Key under which the account is stored."""
        return f"{self.issuer}|{self.sub}"


def resolve_effective_user(user: User, settings: Settings) -> User | None:
    """Return the user with their effective role, or None if the account is not valid in the current mode.

    Accounts remain stored when the mode changes. An account that was authenticated by the means of another
    mode, or not at all, gives no access.
    """
    is_local = user.id == LOCAL_PRINCIPAL.id
    match settings.people_mode:
        case PeopleMode.NONE:
            is_valid = is_local
        case PeopleMode.PASSWORD:
            is_valid = user.has_password and not is_local
        case PeopleMode.PROXY:
            is_valid = user.subject is None and not is_local
        case PeopleMode.OIDC:
            is_valid = _is_from_issuer(user, settings)
    return replace(user, role=effective_role(user, settings)) if is_valid else None


def effective_role(user: User, settings: Settings) -> Role:
    """Return the role of an account under these settings.

    In the modes proxy and oidc only the setting ``admins`` decides, and its result is never stored: a user
    removed from the setting loses the role at the next request, whether with a session or a token. In the
    mode password the stored role applies, which was granted by an admin or on the command line.
    """
    match settings.people_mode:
        case PeopleMode.NONE:
            is_admin = user.id == LOCAL_PRINCIPAL.id
        case PeopleMode.PASSWORD:
            return user.role
        case PeopleMode.PROXY:
            # Compared exactly, as sent by the proxy.
            is_admin = user.subject is None and user.id != LOCAL_PRINCIPAL.id and user.name in settings.admins
        case PeopleMode.OIDC:
            is_admin = _is_from_issuer(user, settings) and _is_admin_at_provider(user, settings.admins)
    return Role.ADMIN if is_admin else Role.USER


def _is_from_issuer(user: User, settings: Settings) -> bool:
    issuer, _, sub = (user.subject or "").partition("|")
    return bool(sub) and issuer.rstrip("/") == settings.oidc_issuer


def _is_admin_at_provider(user: User, admins: Iterable[str]) -> bool:
    """Match ``sub`` and the verified email address, which users cannot choose freely.

    ``preferred_username`` is not used: OpenID Connect guarantees nothing about it, and many providers let
    users change it.
    """
    sub = (user.subject or "").partition("|")[2]
    email = user.verified_email
    return any(entry == sub or (email and entry.casefold() == email) for entry in admins)
