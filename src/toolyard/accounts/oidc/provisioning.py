"""Provisioning of accounts for identities of the identity provider."""

from __future__ import annotations

from toolyard.accounts.account_status import Identity
from toolyard.accounts.errors import NameTaken, NotAllowed
from toolyard.accounts.storage import AccountStorage
from toolyard.accounts.user_names import candidate_names
from toolyard.types.account import Role, User

__all__ = ["find_or_create_account"]


async def find_or_create_account(storage: AccountStorage, identity: Identity, *, complete: bool) -> User:
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
        user = await storage.user(user.id) or user
    return user


async def _create_account(storage: AccountStorage, identity: Identity) -> User:
    for name in candidate_names(identity.name):
        try:
            return await storage.add_user(name, Role.USER, subject=identity.subject)
        except NameTaken:
            # A concurrent first sign-in may have created the account.
            if (existing := await storage.find_user_by_subject(identity.subject)) is not None:
                return existing
    raise NameTaken(f"every name like '{identity.name}' is taken")
