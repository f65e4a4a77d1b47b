"""What admins may do with people's accounts, and what nobody may do to their own; for the API and pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from toolyard.accounts.account_status import effective_role
from toolyard.accounts.errors import NotAllowed
from toolyard.accounts.service import INVITE_LIFE
from toolyard.accounts.startup import invite_link
from toolyard.accounts.user_names import checked_name
from toolyard.config.settings.choices import PeopleMode
from toolyard.registry.errors import NotFound
from toolyard.types.account import Role, User
from toolyard.types.server import Server
from toolyard.web.access.dependencies import Visitor
from toolyard.web.services import Site

__all__ = [
    "Invitation",
    "accept_invite",
    "add_user",
    "change_user",
    "delete_user",
    "invite_user",
    "list_users",
    "user_of",
]


@dataclass(frozen=True, slots=True)
class Invitation:
    """A link with which somebody sets their password. It is shown once."""

    user: User
    url: str
    expires_at: float


async def list_users(site: Site) -> Sequence[User]:
    """Return all accounts by name, each with the role that it has now."""
    return [_with_role(site, user) for user in await site.database.people.users()]


async def user_of(site: Site, user_id: str) -> User:
    """One account, with the role that it has now. Raises NotFound."""
    user = await site.database.people.user(user_id)
    if user is None:
        raise NotFound("there is no such user", hint="it may have been deleted")
    return _with_role(site, user)


async def add_user(site: Site, visitor: Visitor, name: str, role: Role, base_url: str) -> Invitation:
    """An account for somebody new, and the link for them. Raises Invalid, NameTaken or NotAllowed."""
    fit = checked_name(name)
    _only_with_passwords(site)
    user = await site.database.people.add_user(fit, role)
    invitation = await _invitation(site, visitor, user, base_url)
    await site.changed(visitor, "user.add", user.id, name=user.name, role=user.role.value)
    return invitation


async def invite_user(site: Site, visitor: Visitor, user_id: str, base_url: str) -> Invitation:
    """A new link for somebody; earlier ones are void. Raises NotFound or NotAllowed."""
    user = await user_of(site, user_id)
    _only_with_passwords(site)
    invitation = await _invitation(site, visitor, user, base_url)
    await site.changed(visitor, "user.invite", user.id, name=user.name)
    return invitation


async def accept_invite(
    site: Site, invited: User, text: str, password: str, *, address: str, user_agent: str, revoke_tokens: bool
) -> tuple[User, str]:
    """Set the password of an invited user; return them and the text of a cookie.

    The credentials that they stored for servers are removed, here and, as far as their issuers take them
    back, there. Raises Invalid or SignInRefused.
    """
    held = await site.sign_outs.held_by(site.registry, invited.principal, _files(site))
    accepted = await site.people.accept(
        text, password, address=address, user_agent=user_agent, revoke_tokens=revoke_tokens
    )
    # Connections that are open were made with the old credentials.
    await site.parts.leave(invited.id)
    site.sign_outs.give_back(held)
    return accepted


async def change_user(
    site: Site,
    visitor: Visitor,
    user_id: str,
    *,
    name: str | None = None,
    role: Role | None = None,
    disabled: bool | None = None,
) -> User:
    """Rename, give another role, disable; what is None stays. Whoever is disabled is signed out, also of
    servers, and their tokens open nothing. Raises NotFound, Invalid, NameTaken or NotAllowed."""
    user, people = await user_of(site, user_id), site.database.people
    if user.id == visitor.user.id and (disabled or role is Role.USER):
        raise NotAllowed("you cannot disable yourself, or stop being an admin", hint="ask another admin")
    if role is not None and site.settings.people_mode is not PeopleMode.PASSWORD:
        raise NotAllowed(
            f"in the mode {site.settings.people_mode} the settings say who is an admin",
            hint="change the setting admins",
        )
    if name is not None and site.settings.people_mode is PeopleMode.PROXY:
        # The name is how the proxy tells accounts apart: another name would hand this account over.
        raise NotAllowed(
            "in the mode proxy an account belongs to whom the proxy gives its name",
            hint="rename the person where the proxy knows them",
        )
    changes: dict[str, object] = {}
    try:
        if name is not None:
            fit = checked_name(name)
            await people.rename(user.id, fit)
            changes["new_name"] = fit
        if role is not None:
            await people.set_role(user.id, role)
            changes["role"] = role.value
        if disabled is not None:
            await people.disable_user(user.id, disabled)
            changes["disabled"] = disabled
            if disabled:
                await site.chats.leave(user.id)
                await site.parts.leave(user.id)
                await site.sign_outs.sign_out_user(site.registry, user.principal, _files(site))
    finally:
        # Also if a later step fails: what was changed is changed.
        if changes:
            await site.changed(visitor, "user.edit", user.id, name=user.name, **changes)
    return await user_of(site, user_id)


async def delete_user(site: Site, visitor: Visitor, user_id: str) -> User:
    """With sessions, tokens, instances and their sign-ins; who they were. Raises NotFound or NotAllowed."""
    user = await user_of(site, user_id)
    if user.id == visitor.user.id:
        raise NotAllowed("you cannot delete yourself", hint="ask another admin")
    await site.chats.leave(user.id)
    held = await site.sign_outs.held_by(site.registry, user.principal, _files(site))
    await site.database.people.delete_user(user.id)
    await site.parts.leave(user.id)
    site.sign_outs.give_back(held)
    await site.changed(visitor, "user.delete", user.id, name=user.name)
    return user


def _with_role(site: Site, user: User) -> User:
    return replace(user, role=effective_role(user, site.settings))


def _files(site: Site) -> Iterable[Server]:
    return site.configuration.servers.values()


async def _invitation(site: Site, visitor: Visitor, user: User, base_url: str) -> Invitation:
    text = await site.people.invite_user(user, by=visitor.user.name)
    return Invitation(user, invite_link(base_url, text), site.clock() + INVITE_LIFE)


def _only_with_passwords(site: Site) -> None:
    if site.settings.people_mode is not PeopleMode.PASSWORD:
        raise NotAllowed(
            f"in the mode {site.settings.people_mode} nobody is invited",
            hint="accounts are made when people first come",
        )
