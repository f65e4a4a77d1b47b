"""User administration by admins, shared by the API and the pages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from toolyard.accounts import AccountService
from toolyard.accounts.effective_role import effective_role
from toolyard.accounts.errors import NotAllowed
from toolyard.accounts.provisioning import validate_name
from toolyard.accounts.service import INVITE_LIFETIME_SECONDS
from toolyard.accounts.startup import build_invite_link
from toolyard.agents.chat.chats import ChatService
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.core.audit import AuditRecorder
from toolyard.core.current_config import CurrentConfig
from toolyard.core.server_updates import ServerUpdates
from toolyard.registry import Registry
from toolyard.registry.errors import NotFound
from toolyard.registry.sign_out import SignOutService
from toolyard.store.repositories.accounts import SqlAccountStorage
from toolyard.types.account import RequestUser, Role, User
from toolyard.types.server import Server

__all__ = [
    "AccountAdmin",
    "Invitation",
]


@dataclass(frozen=True, slots=True)
class Invitation:
    """A link for a user to set their password. It is shown only once."""

    user: User
    url: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class AccountAdmin:
    """Administers the accounts of users."""

    _people: AccountService
    _accounts: SqlAccountStorage
    _settings: Settings
    _config: CurrentConfig
    _registry: Registry
    _sign_outs: SignOutService
    _chats: ChatService
    _updates: ServerUpdates
    _audit: AuditRecorder

    async def list_users(self) -> Sequence[User]:
        """Return all accounts, sorted by name, with their effective roles."""
        return [self._with_effective_role(user) for user in await self._accounts.list_users()]

    async def find_user(self, user_id: str) -> User:
        """Return an account with its effective role. Raises NotFound."""
        user = await self._accounts.get_user(user_id)
        if user is None:
            raise NotFound("user not found", hint="it may have been deleted")
        return self._with_effective_role(user)

    async def add_user(self, request_user: RequestUser, name: str, role: Role, base_url: str) -> Invitation:
        """Create an account and an invitation to it. Raises Invalid, NameTaken or NotAllowed."""
        valid_name = validate_name(name)
        self._require_password_mode()
        user = await self._accounts.add_user(valid_name, role)
        invitation = await self._create_invitation(request_user, user, base_url)
        await self._audit.record_change(
            request_user, "user.add", user.id, name=user.name, role=user.role.value
        )
        return invitation

    async def invite_user(self, request_user: RequestUser, user_id: str, base_url: str) -> Invitation:
        """Create a new invitation, which replaces earlier ones. Raises NotFound or NotAllowed."""
        user = await self.find_user(user_id)
        self._require_password_mode()
        invitation = await self._create_invitation(request_user, user, base_url)
        await self._audit.record_change(request_user, "user.invite", user.id, name=user.name)
        return invitation

    async def accept_invite(
        self,
        invited_user: User,
        invite_secret: str,
        password: str,
        *,
        address: str,
        user_agent: str,
        revoke_tokens: bool,
    ) -> tuple[User, str]:
        """Set the password of an invited user; return the user and the value of the session cookie.

        The user's stored credentials for servers are deleted, and revoked at issuers that support it. Raises
        Invalid or SignInRefused.
        """
        # Collected first, because accepting the invitation deletes the grants.
        grants = await self._sign_outs.collect_user_grants(
            self._registry, invited_user.principal, self._list_config_servers()
        )
        accepted = await self._people.accept_invite(
            invite_secret, password, address=address, user_agent=user_agent, revoke_tokens=revoke_tokens
        )
        # Open connections still use the old credentials.
        await self._updates.forget_principal(invited_user.id)
        self._sign_outs.revoke_in_background(grants)
        return accepted

    async def change_user(
        self,
        request_user: RequestUser,
        user_id: str,
        *,
        name: str | None = None,
        role: Role | None = None,
        disabled: bool | None = None,
    ) -> User:
        """Rename a user, change their role, or disable them; None leaves a property unchanged.

        Disabling signs the user out, also of servers, and invalidates their tokens. Raises NotFound, Invalid,
        NameTaken or NotAllowed.
        """
        user, people = await self.find_user(user_id), self._accounts
        if user.id == request_user.user.id and (disabled or role is Role.USER):
            raise NotAllowed(
                "you cannot disable your own account or remove your own admin role", hint="ask another admin"
            )
        if role is not None and self._settings.people_mode is not PeopleMode.PASSWORD:
            raise NotAllowed(
                f"in {self._settings.people_mode} mode, admins are defined by the settings",
                hint="change the setting admins",
            )
        if name is not None and self._settings.people_mode is PeopleMode.PROXY:
            # The proxy identifies accounts by name: a rename would give this account to another person.
            raise NotAllowed(
                "users cannot be renamed in proxy mode: the proxy sends their names",
                hint="rename the user in the identity system behind the proxy",
            )
        changes: dict[str, object] = {}
        try:
            if name is not None:
                valid_name = validate_name(name)
                await people.rename_user(user.id, valid_name)
                changes["new_name"] = valid_name
            if role is not None:
                await people.set_role(user.id, role)
                changes["role"] = role.value
            if disabled is not None:
                await people.set_disabled(user.id, disabled)
                changes["disabled"] = disabled
                if disabled:
                    await self._chats.stop_all_turns(user.id)
                    await self._updates.forget_principal(user.id)
                    await self._sign_outs.sign_out_user(
                        self._registry, user.principal, self._list_config_servers()
                    )
        finally:
            # If a later step fails, the earlier changes remain and must be audited.
            if changes:
                await self._audit.record_change(request_user, "user.edit", user.id, name=user.name, **changes)
        return await self.find_user(user_id)

    async def delete_user(self, request_user: RequestUser, user_id: str) -> User:
        """Delete a user with their sessions, tokens, instances and sign-ins; return the deleted user.

        Raises NotFound or NotAllowed.
        """
        user = await self.find_user(user_id)
        if user.id == request_user.user.id:
            raise NotAllowed("you cannot delete your own account", hint="ask another admin")
        await self._chats.stop_all_turns(user.id)
        # Collected first, because deleting the user deletes the grants.
        grants = await self._sign_outs.collect_user_grants(
            self._registry, user.principal, self._list_config_servers()
        )
        await self._accounts.delete_user(user.id)
        await self._updates.forget_principal(user.id)
        self._sign_outs.revoke_in_background(grants)
        await self._audit.record_change(request_user, "user.delete", user.id, name=user.name)
        return user

    def _with_effective_role(self, user: User) -> User:
        return replace(user, role=effective_role(user, self._settings))

    def _list_config_servers(self) -> Iterable[Server]:
        return self._config.configuration.servers.values()

    async def _create_invitation(self, request_user: RequestUser, user: User, base_url: str) -> Invitation:
        text = await self._people.invite_user(user, by=request_user.user.name)
        return Invitation(user, build_invite_link(base_url, text), time.time() + INVITE_LIFETIME_SECONDS)

    def _require_password_mode(self) -> None:
        if self._settings.people_mode is not PeopleMode.PASSWORD:
            raise NotAllowed(
                f"invitations are not available in {self._settings.people_mode} mode",
                hint="accounts are created automatically on first sign-in",
            )
