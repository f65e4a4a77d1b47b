"""What an identity provider's claims say about a person, made fit for an account of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolyard.accounts.account_status import Identity
from toolyard.accounts.errors import SignInRefused
from toolyard.accounts.user_names import MAX_NAME_CHARACTERS, normalize_name

__all__ = ["parse_identity"]

_MAX_SUB_CHARACTERS = 255
"""OpenID Connect Core, section 2."""
_MAX_EMAIL_CHARACTERS = 320


def parse_identity(issuer: str, claims: Mapping[str, Any]) -> Identity:
    """Who it is. Raises SignInRefused where the provider does not say."""
    sub = claims.get("sub")
    if not isinstance(sub, str) or not sub or len(sub) > _MAX_SUB_CHARACTERS or not sub.isprintable():
        raise SignInRefused("the identity provider does not say who you are: its 'sub' cannot be used")
    email = claims.get("email")
    verified = claims.get("email_verified") is True and _is_storable_email(email)
    named = (claims.get(key) for key in ("preferred_username", "email"))
    fit = (normalize_name(name[:MAX_NAME_CHARACTERS]) for name in (*named, sub) if isinstance(name, str))
    name = next((each for each in fit if each is not None), "user")
    return Identity(issuer, sub, name, email if verified else None)


def _is_storable_email(email: object) -> bool:
    return isinstance(email, str) and len(email) <= _MAX_EMAIL_CHARACTERS and email.isprintable()
