"""Names of accounts, and accounts that are created on the first visit.

Names are normalized (NFKC), so that names that look the same are equal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolyard.accounts.effective_role import Identity
from toolyard.accounts.errors import Invalid, NameTaken, NotAllowed, SignInRefused
from toolyard.errors import Problem
from toolyard.types.account import Role, User

if TYPE_CHECKING:
    from toolyard.store.repositories.accounts import SqlAccountStorage

__all__ = [
    "MAX_NAME_CHARACTERS",
    "add_account",
    "candidate_names",
    "find_or_create_account",
    "normalize_name",
    "parse_identity",
    "validate_name",
]


MAX_NAME_CHARACTERS = 100


def normalize_name(text: str) -> str | None:
    """Return the normalized name, or None if the text is not a valid name."""
    name = unicodedata.normalize("NFKC", text).strip()
    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable() or "  " in name:
        return None
    return name


def validate_name(text: str) -> str:
    """Return the normalized name. Raises Invalid."""
    name = normalize_name(text)
    if name is None:
        message = f"a name must have 1 to {MAX_NAME_CHARACTERS} visible characters"
        raise Invalid([Problem(message, path="name", hint="choose another name")])
    return name


def candidate_names(name: str) -> tuple[str, ...]:
    """Return the name, followed by alternatives with a number appended, for use if it is taken."""
    shorter = name[: MAX_NAME_CHARACTERS - 4]
    return (name, *(f"{shorter}-{number}" for number in range(2, 1000)))


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
    subject = identity.subject
    user = await storage.find_user_by_subject(subject) or await add_account(
        storage, identity.name, Role.USER, subject=subject
    )
    if user.disabled:
        raise NotAllowed("this account is disabled", hint="ask an admin to enable it")
    email = identity.verified_email.casefold() if identity.verified_email else None
    if email != user.verified_email and (complete or email is not None):
        await storage.set_verified_email(user.id, email)
        user = await storage.get_user(user.id) or user
    return user


async def add_account(
    storage: SqlAccountStorage,
    name: str,
    role: Role,
    *,
    user_id: str | None = None,
    subject: str | None = None,
) -> User:
    """Create an account; return the existing one if a concurrent request created it meanwhile.

    An account is identified by ``user_id`` or ``subject``, and gets a number appended to its name if that is
    taken; without either, the name identifies it. Raises NameTaken if no name is free.
    """
    for candidate in candidate_names(name) if user_id or subject else (name,):
        try:
            return await storage.add_user(candidate, role, user_id=user_id, subject=subject)
        except NameTaken:
            if subject is not None:
                existing = await storage.find_user_by_subject(subject)
            elif user_id is not None:
                existing = await storage.get_user(user_id)
            else:
                existing = await storage.find_user_by_name(name)
            if existing is not None:
                return existing
    raise NameTaken(f"'{name}' and its numbered variants are taken")
