"""Conversion of an identity provider's claims to an ``Identity``, and provisioning of its account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolyard.accounts.account_status import Identity
from toolyard.accounts.errors import NameTaken, NotAllowed, SignInRefused
from toolyard.accounts.user_names import MAX_NAME_CHARACTERS, candidate_names, normalize_name
from toolyard.types.account import Role, User

if TYPE_CHECKING:
    from toolyard.store.repositories.accounts import SqlAccountStorage

__all__ = ["find_or_create_account", "parse_identity"]


_MAX_SUB_CHARACTERS = 255
"""Limit of OpenID Connect Core, section 2."""
_MAX_EMAIL_CHARACTERS = 320


def parse_identity(issuer: str, claims: Mapping[str, Any]) -> Identity:
    """Return the identity in a set of claims. Raises SignInRefused if ``sub`` is missing or not valid.

    The name is the first usable one of ``preferred_username``, ``email`` and ``sub``.
    """
    sub = claims.get("sub")
    if not isinstance(sub, str) or not sub or len(sub) > _MAX_SUB_CHARACTERS or not sub.isprintable():
        raise SignInRefused("the identity provider did not send a valid user id (claim 'sub')")
    email = claims.get("email")
    is_verified = claims.get("email_verified") is True and _is_storable_email(email)
    candidates = (claims.get("preferred_username"), email, sub)
    names = (normalize_name(name[:MAX_NAME_CHARACTERS]) for name in candidates if isinstance(name, str))
    name = next((name for name in names if name is not None), "user")
    return Identity(issuer, sub, name, email if is_verified else None)


def _is_storable_email(email: object) -> bool:
    return isinstance(email, str) and len(email) <= _MAX_EMAIL_CHARACTERS and email.isprintable()


async def find_or_create_account(storage: SqlAccountStorage, identity: Identity, *, complete: bool) -> User:
    """Return the stored account of an identity; create it on the first visit.

    ``complete`` means that the identity has all claims of the provider, as after a sign-in: a missing email
    address then removes the stored one. Access tokens may simply not contain it.

    Raises NotAllowed if the account is disabled, and NameTaken if no name is free.
    """
    user = await storage.find_user_by_subject(identity.subject) or await _create_account(storage, identity)
    if user.disabled:
        raise NotAllowed("this account is disabled", hint="ask an admin")
    email = identity.verified_email.casefold() if identity.verified_email else None
    if email != user.verified_email and (complete or email is not None):
        await storage.set_verified_email(user.id, email)
        user = await storage.get_user(user.id) or user
    return user


async def _create_account(storage: SqlAccountStorage, identity: Identity) -> User:
    for name in candidate_names(identity.name):
        try:
            return await storage.add_user(name, Role.USER, subject=identity.subject)
        except NameTaken:
            # A concurrent first sign-in may have created the account.
            if (existing := await storage.find_user_by_subject(identity.subject)) is not None:
                return existing
    raise NameTaken(f"'{identity.name}' and its numbered variants are taken")
