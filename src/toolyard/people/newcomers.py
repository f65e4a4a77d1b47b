"""Accounts for those whom the identity provider names and who were never here."""

from __future__ import annotations

from toolyard.model.people import Role, User
from toolyard.people.errors import NameTaken
from toolyard.people.names import free_names
from toolyard.people.standing import Identity
from toolyard.people.storage import PeopleStorage

__all__ = ["add_newcomer"]


async def add_newcomer(storage: PeopleStorage, identity: Identity, role: Role) -> User:
    """A new account under the first free name like theirs. Raises NameTaken where there is none."""
    for name in free_names(identity.name):
        try:
            return await storage.add_user(name, role, subject=identity.subject)
        except NameTaken:
            # Two first sign-ins at once: the other one made it.
            if (known := await storage.user_of_subject(identity.subject)) is not None:
                return known
    raise NameTaken(f"every name like '{identity.name}' is taken")
