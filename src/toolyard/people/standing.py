"""Whether an account counts in this mode, and as what. Settings decide anew at every request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from toolyard.config.setting_choices import PeopleMode
from toolyard.config.settings import Settings
from toolyard.model.people import Role, User
from toolyard.model.principal import LOCAL

__all__ = ["Identity", "is_admin_by_name", "is_admin_by_provider", "standing"]


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


def standing(user: User, settings: Settings) -> User | None:
    """The user with the role that the settings give; None where this account has no place in this mode.

    Accounts outlive a change of mode. One that was made without a proof, or with another one, opens nothing.
    """
    match settings.people_mode:
        case PeopleMode.NONE:
            return replace(user, role=Role.ADMIN) if user.id == LOCAL.id else None
        case PeopleMode.PASSWORD:
            return user if user.has_password and user.id != LOCAL.id else None
        case PeopleMode.PROXY:
            if user.id == LOCAL.id or user.subject is not None:
                return None
            return replace(user, role=_role(is_admin_by_name(user.name, settings.admins)))
        case PeopleMode.OIDC:
            return _at_provider(user, settings)


def is_admin_by_name(name: str, admins: Iterable[str]) -> bool:
    """In the mode proxy: the name as the proxy sends it, letter by letter."""
    return name in admins


def is_admin_by_provider(identity: Identity, admins: Iterable[str]) -> bool:
    """In the mode oidc: by what people cannot choose for themselves.

    That is the ``sub``, and an email address that the provider has verified. ``preferred_username`` never
    makes an admin: OpenID Connect promises nothing about it, and many providers let people change it at will.
    """
    email = (identity.verified_email or "").casefold()
    return any(entry == identity.sub or (email and entry.casefold() == email) for entry in admins)


def _at_provider(user: User, settings: Settings) -> User | None:
    issuer, _, sub = (user.subject or "").partition("|")
    if not sub or issuer.rstrip("/") != settings.oidc_issuer:
        return None
    # The email address is known at sign-in only. Who is an admin by it stays one until the next sign-in, as
    # long as the setting names any email address at all.
    named = sub in settings.admins or any("@" in entry for entry in settings.admins)
    return user if named else replace(user, role=Role.USER)


def _role(is_admin: bool) -> Role:
    return Role.ADMIN if is_admin else Role.USER
