"""Accounts of people whom the identity provider names."""

from __future__ import annotations

from toolyard.accounts.account_status import Identity
from toolyard.accounts.errors import NameTaken, NotAllowed
from toolyard.accounts.storage import AccountStorage
from toolyard.accounts.user_names import candidate_names
from toolyard.types.account import Role, User

__all__ = ["find_or_create_account"]


async def find_or_create_account(storage: AccountStorage, identity: Identity, *, complete: bool) -> User:
    """Return the account of an identity as it is stored; a new one if this is their first visit.

    ``complete``: the identity has everything that the provider says about the person, as after a sign-in.
    Then a missing email address removes the stored one; an access token may just not carry it.

    Raises NotAllowed if the account is disabled, NameTaken if no name is free.
    """
    user = await storage.find_user_by_subject(identity.subject) or await _create_account(storage, identity)
    if user.disabled:
        raise NotAllowed("this account is disabled", hint="ask an admin")
    email = identity.verified_email.casefold() if identity.verified_email else None
    if email != user.verified_email and (complete or email is not None):
        await storage.set_verified_email(user.id, email)
        user = await storage.user(user.id) or user
    return user


async def _create_account(storage: AccountStorage, identity: Identity) -> User:
    for name in candidate_names(identity.name):
        try:
            return await storage.add_user(name, Role.USER, subject=identity.subject)
        except NameTaken:
            # Of two concurrent first sign-ins, the other one added it.
            if (known := await storage.find_user_by_subject(identity.subject)) is not None:
                return known
    raise NameTaken(f"every name like '{identity.name}' is taken")
