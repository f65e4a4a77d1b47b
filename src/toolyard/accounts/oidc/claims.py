"""Conversion of an identity provider's claims to an ``Identity``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolyard.accounts.account_status import Identity
from toolyard.accounts.errors import SignInRefused
from toolyard.accounts.user_names import MAX_NAME_CHARACTERS, normalize_name

__all__ = ["parse_identity"]

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
