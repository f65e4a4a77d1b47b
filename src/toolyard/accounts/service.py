"""Account service: sign-in and sign-out, browser sessions, API tokens and invite links.

All authentication of requests goes through this module.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolyard.accounts.attempt_limits import SignInLimiter, address_network, guest_counters, owner_counters
from toolyard.accounts.browser_sessions import Device, build_session, with_extended_expiry
from toolyard.accounts.effective_role import Identity, resolve_effective_user
from toolyard.accounts.errors import Invalid, NotAllowed, SignInRefused
from toolyard.accounts.passwords import AsyncPasswordHasher, validate_new_password
from toolyard.accounts.provisioning import add_account, find_or_create_account, normalize_name, validate_name
from toolyard.accounts.random_secrets import (
    check_scope,
    hash_secret,
    is_secret,
    is_token,
    new_secret,
    new_token,
)
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.errors import Problem
from toolyard.types.account import (
    LOCAL_PRINCIPAL,
    AccountNotice,
    AccountNoticeKind,
    ApiToken,
    BrowserSession,
    Invite,
    Right,
    Role,
    TokenScope,
    User,
)
from toolyard.types.timestamps import is_future, is_recent

if TYPE_CHECKING:
    from toolyard.store.repositories.accounts import SqlAccountStorage

__all__ = ["INVITE_LIFETIME_SECONDS", "AccountService"]

log = logging.getLogger("toolyard.people")

INVITE_LIFETIME_SECONDS = 86_400.0
"""Lifetime of an invite link."""

_SESSION_MODES = (PeopleMode.PASSWORD, PeopleMode.OIDC)
_USER_TOUCH_SECONDS = 300.0
"""Minimum interval between two updates of a user's or session's ``last_seen``."""
_TOKEN_TOUCH_SECONDS = 60.0
"""Minimum interval between two updates of a token's ``last_used_at``."""
_MAX_TOKENS_PER_USER = 200
_MAX_TOKEN_NAME_CHARACTERS = 100
_MAX_TOKEN_LIFETIME_SECONDS = 10 * 366 * 86_400.0


class AccountService:
    """Authenticates requests, and manages sessions, tokens and invites.

    Secrets are stored and looked up by their hash. The mode and the settings decide at every request whether
    the account is valid, and with which role.
    """

    def __init__(
        self,
        storage: SqlAccountStorage,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.time,
        passwords: AsyncPasswordHasher | None = None,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self.people_mode = settings.people_mode
        self.clock = clock
        """Returns the time in seconds since 1970."""
        self._passwords = passwords or AsyncPasswordHasher()
        self._sign_in_limiter = SignInLimiter(storage, clock)
        self._cached_local_user: User | None = None

    # Passwords.

    async def sign_in(
        self, name: str, password: str, address: str, *, device: Device | None = None, user_agent: str = ""
    ) -> tuple[User, str]:
        """Sign in with a password; return the user and the text of a new session cookie.

        ``device`` identifies a browser with an earlier sign-in. Raises TooManySignIns, or SignInRefused,
        which does not tell whether the name or the password is wrong.
        """
        self._require_password_mode()
        user = await self.find_user(name)
        if device is not None and user is not None and device.user_id == user.id:
            counters = owner_counters(f"device:{device.id}")
        else:
            counters = guest_counters(name, address)
        await self._sign_in_limiter.check(counters)
        async with self._passwords.hash_slots:
            # Check again: many concurrent attempts may have passed the first check before any of them was
            # counted as a failure.
            await self._sign_in_limiter.check(counters)
            # An unknown name is checked, too: the same response time does not reveal which names exist.
            stored_hash = await self._storage.get_password_hash(user.id if user is not None else "")
            matches = await self._passwords.verify(password, stored_hash)
            if not matches or user is None or stored_hash is None or user.disabled:
                await self._sign_in_limiter.record_failure(counters)
                raise SignInRefused("name or password is wrong", hint="check both, and try again")
            if self._passwords.is_outdated(stored_hash):
                await self._storage.set_password_hash(user.id, await self._passwords.hash(password))
        await self._sign_in_limiter.record_success(counters)
        return user, await self.begin_session(user, address, user_agent)

    async def change_password(
        self, user: User, old: str, new: str, address: str, *, user_agent: str = ""
    ) -> str:
        """Change the password, end all sessions of the user, and return a new cookie for this browser.

        Raises Invalid, SignInRefused or TooManySignIns.
        """
        self._require_password_mode()
        validate_new_password(new, "new_password")
        # A signed-in user has a separate counter, so that failures of other people do not delay them.
        counters = owner_counters(f"change:{user.id}")
        await self._sign_in_limiter.check(counters)
        async with self._passwords.hash_slots:
            await self._sign_in_limiter.check(counters)
            if not await self._passwords.verify(old, await self._storage.get_password_hash(user.id)):
                await self._sign_in_limiter.record_failure(counters)
                raise SignInRefused("the old password is wrong", hint="check it, and try again")
            hashed = await self._passwords.hash(new)
        await self._sign_in_limiter.record_success(counters)
        await self._storage.set_password_hash(user.id, hashed)
        await self._storage.end_sessions(user.id)
        return await self.begin_session(user, address, user_agent)

    async def invite(self, name: str, role: Role, *, by: str = "") -> str:
        """Return the secret of an invite link for the user with this name; see ``invite_user``.

        A missing user is created with the role; an existing user keeps their role. Raises Invalid or
        NotAllowed.
        """
        self._require_password_mode()
        name = validate_name(name)
        user = await self._storage.find_user_by_name(name) or await add_account(self._storage, name, role)
        return await self.invite_user(user, by=by)

    async def invite_user(self, user: User, *, by: str = "") -> str:
        """Return the secret of an invite link, which can be used once within a day to set the password.

        The link becomes void if the account is renamed or disabled, or gets another password or another link.
        If the account has been used before, its owner sees a notice that names ``by`` as the creator of the
        link. Raises NotAllowed.
        """
        self._require_password_mode()
        if user.id == LOCAL_PRINCIPAL.id:
            raise NotAllowed(f"'{user.name}' is the local user of this machine, who has no password")
        text = new_secret()
        now = self.clock()
        await self._storage.put_invite(hash_secret(text), Invite(user.id, now + INVITE_LIFETIME_SECONDS, by))
        if _has_been_used(user):
            await self._storage.set_notice(user.id, AccountNotice(AccountNoticeKind.LINK_MADE, now, by))
        return text

    async def find_invited_user(self, text: str) -> User | None:
        """Return the user of an invite link without using the link."""
        if not is_secret(text) or self._settings.people_mode is not PeopleMode.PASSWORD:
            return None
        return await self._find_invite_user(await self._storage.find_invite(hash_secret(text), self.clock()))

    async def accept_invite(
        self,
        text: str,
        password: str,
        *,
        address: str = "",
        user_agent: str = "",
        revoke_tokens: bool = False,
    ) -> tuple[User, str]:
        """Set the password with an invite link; return the user and the text of a new session cookie.

        The holder of the link may not be the owner of the account. So all its sessions end, the credentials
        stored for servers are deleted, and the owner gets a notice. API tokens stay unless ``revoke_tokens``.

        Raises Invalid, which leaves the link usable, or SignInRefused.
        """
        self._require_password_mode()
        validate_new_password(password)
        refusal = SignInRefused(
            "this link is unknown, was used before, or is older than a day", hint="ask an admin for a new one"
        )
        if not is_secret(text):
            raise refusal
        # Hash first: the link must not be used up if the request is cancelled while it waits for a slot.
        async with self._passwords.hash_slots:
            hashed = await self._passwords.hash(password)
        invite = await self._storage.take_invite(hash_secret(text), self.clock())
        user = await self._find_invite_user(invite)
        if user is None or invite is None:
            raise refusal
        notice = (
            AccountNotice(AccountNoticeKind.LINK_USED, self.clock(), invite.made_by)
            if _has_been_used(user)
            else None
        )
        await self._storage.reset_password(user.id, hashed, notice, revoke_tokens=revoke_tokens)
        cookie = await self.begin_session(user, address, user_agent)
        return await self._storage.get_user(user.id) or user, cookie

    async def record_client(self, user: User) -> None:
        """Remember that an MCP client of the user used the gateway."""
        if user.client_seen_at is None:
            await self._storage.set_client_seen(user.id, self.clock())
            self._cached_local_user = None

    async def set_first_steps_hidden(self, user: User, *, hidden: bool) -> None:
        """Stop showing the first steps on the user's home page, or show them again."""
        await self._storage.set_first_steps_hidden(user.id, self.clock() if hidden else None)
        self._cached_local_user = None

    async def dismiss_notice(self, user: User) -> None:
        """Remove the user's notice after they have read it."""
        await self._storage.set_notice(user.id, None)

    async def _find_invite_user(self, invite: Invite | None) -> User | None:
        if invite is None or is_future(invite.expires_at - INVITE_LIFETIME_SECONDS, self.clock()):
            return None
        user = await self._storage.get_user(invite.user_id)
        return None if user is None or user.disabled else user

    async def has_admin(self) -> bool:
        """Return whether any admin can sign in with a password."""
        users = await self._storage.list_users()
        return any(user.role is Role.ADMIN and user.has_password and not user.disabled for user in users)

    # Browser sessions.

    async def begin_session(self, user: User, address: str = "", user_agent: str = "") -> str:
        """Start a browser session, and return the text of its cookie, which is not stored anywhere."""
        now, text = self.clock(), new_secret()
        session = build_session(text, user, now, address_network(address), user_agent)
        await self._storage.add_session(hash_secret(text), session)
        await self._storage.touch_user(user.id, now)
        return text

    async def authenticate_cookie(
        self, text: str, address: str | None = None
    ) -> tuple[BrowserSession, User] | None:
        """Return the session and user of a cookie, or None. ``address`` is the client's address."""
        if not is_secret(text) or self._settings.people_mode not in _SESSION_MODES:
            return None
        now, key = self.clock(), hash_secret(text)
        record = await self._storage.find_session(key, now)
        if record is None:
            return None
        session, user = record
        # The clock was set back since: the session's expiry could not be trusted.
        if is_future(session.created_at, now):
            return None
        effective_user = resolve_effective_user(user, self._settings)
        if effective_user is None:
            return None
        later = with_extended_expiry(session, now)
        if later is not session:
            await self._storage.extend_session(key, later.expires_at)
        network = session.network if address is None else address_network(address)
        if _is_last_seen_stale(session.last_seen, now) or network != session.network:
            await self._storage.touch_session(key, now, network)
            # The last use of a session is one of its user.
            await self._touch_user(effective_user, now)
        return later, effective_user

    async def list_sessions(self, user: User) -> Sequence[BrowserSession]:
        """Return the active sessions of a user, most recently used first."""
        return await self._storage.list_sessions(user.id, self.clock())

    async def end_session(self, user: User, session_id: str) -> bool:
        """End one session of a user; return False if the user has no such session."""
        return await self._storage.end_user_session(user.id, session_id)

    async def sign_out(self, text: str) -> None:
        """End the session of this cookie."""
        await self._storage.end_session(hash_secret(text))

    async def sign_out_everywhere(self, user: User) -> None:
        """End all sessions of a user. API tokens stay valid."""
        await self._storage.end_sessions(user.id)

    # Tokens.

    @property
    def token_lifetime(self) -> float | None:
        """Default lifetime of a new token in seconds; None means unlimited."""
        return self._settings.token_lifetime * 86_400.0 or None

    async def create_token(
        self, user: User, name: str, scope: TokenScope, expires_in: float | None
    ) -> tuple[ApiToken, str]:
        """Create a token; return it with its text, which is not stored. Raises Invalid or NotAllowed."""
        problems: list[Problem] = []
        label = " ".join(name.split())
        if not label or len(label) > _MAX_TOKEN_NAME_CHARACTERS or not label.isprintable():
            message = f"the name of a token must have 1 to {_MAX_TOKEN_NAME_CHARACTERS} characters"
            problems.append(Problem(message, path="name"))
        if expires_in is not None and not 0 < expires_in <= _MAX_TOKEN_LIFETIME_SECONDS:
            problems.append(
                Problem("a token can be valid for up to ten years, or without limit", path="expires_in")
            )
        if problems:
            raise Invalid(problems)
        check_scope(scope)
        if Right.ADMIN in scope.rights and user.role is not Role.ADMIN:
            raise NotAllowed("only admins can create tokens with the right 'admin'")
        if len(await self._storage.list_tokens(user.id)) >= _MAX_TOKENS_PER_USER:
            hint = "delete tokens that are no longer used"
            raise Invalid(
                [
                    Problem(
                        f"you already have {_MAX_TOKENS_PER_USER} tokens, which is the limit",
                        path="name",
                        hint=hint,
                    )
                ]
            )
        now, text = self.clock(), new_token()
        expires_at = None if expires_in is None else now + expires_in
        token = ApiToken(new_secret()[:16], user.id, label, scope, now, expires_at)
        await self._storage.add_token(hash_secret(text), token)
        return token, text

    async def authenticate_token(self, text: str) -> tuple[ApiToken, User] | None:
        """Return the API token with this text, and its user, or None."""
        if not is_token(text):
            return None
        now = self.clock()
        record = await self._storage.find_token(hash_secret(text), now)
        if record is None:
            return None
        token, user = record
        effective_user = resolve_effective_user(user, self._settings)
        if effective_user is None:
            return None
        is_proxy_mode = self._settings.people_mode is PeopleMode.PROXY
        if is_proxy_mode and self._is_forgotten_by_proxy(user, now):
            log.warning(
                "refused an API token of '%s': no request through the proxy for %d days (proxy_token_days)",
                user.name,
                self._settings.proxy_token_days,
            )
            return None
        if token.last_used_at is None or not is_recent(token.last_used_at, now, _TOKEN_TOUCH_SECONDS):
            await self._storage.touch_token(token.id, now)
        # In proxy mode, ``last_seen`` is the time of the last request through the proxy.
        if not is_proxy_mode:
            await self._touch_user(effective_user, now)
        return token, effective_user

    def _is_forgotten_by_proxy(self, user: User, now: float) -> bool:
        """Return whether the proxy has not named a user for so long that it may not know them any more."""
        days = self._settings.proxy_token_days
        return days > 0 and now - (user.last_seen or user.created_at) > days * 86_400.0

    # Users authenticated by other means: the local machine, a proxy, an identity provider.

    async def local_user(self) -> User:
        """Return the local user, who exists only in none mode. Raises NotAllowed in other modes."""
        if self._cached_local_user is None:
            stored = await self._storage.get_user(LOCAL_PRINCIPAL.id) or await add_account(
                self._storage, LOCAL_PRINCIPAL.name, Role.ADMIN, user_id=LOCAL_PRINCIPAL.id
            )
            self._cached_local_user = resolve_effective_user(stored, self._settings)
        if self._cached_local_user is None:
            raise NotAllowed(f"there is no local user with people_mode {self._settings.people_mode}")
        return self._cached_local_user

    async def authenticate_proxy_name(self, name: str) -> User:
        """Return the user named by a trusted proxy; the first request creates the account.

        The name must match exactly: two spellings may be two users of the proxy, who must not share one
        account. Raises NotAllowed.
        """
        if self._settings.people_mode is not PeopleMode.PROXY:
            raise NotAllowed("user names from a proxy are accepted only with people_mode proxy")
        if normalize_name(name) != name:
            raise NotAllowed(
                "the proxy sent an invalid user name", hint="names have 1 to 100 visible characters"
            )
        user = await self._storage.find_user_by_name(name) or await add_account(
            self._storage, name, Role.USER
        )
        effective_user = resolve_effective_user(user, self._settings)
        if effective_user is None or user.name != name:
            raise NotAllowed(
                f"the name '{name}' belongs to another account, '{user.name}'",
                hint="configure the proxy to send each name in one spelling, or delete that account: "
                f"toolyard users delete '{user.name}'",
            )
        if user.disabled:
            raise NotAllowed("this account is disabled", hint="ask an admin to enable it")
        await self._touch_user(effective_user, self.clock())
        return effective_user

    async def authenticate_identity(self, identity: Identity) -> User:
        """Return the user of an identity from the provider's access token; the first one creates the account.

        Raises NotAllowed.
        """
        user = await find_or_create_account(self._storage, identity, complete=False)
        effective_user = resolve_effective_user(user, self._settings)
        if effective_user is None:
            raise NotAllowed("this account belongs to another identity provider", hint="check oidc_issuer")
        await self._touch_user(effective_user, self.clock())
        return effective_user

    async def find_user(self, name: str) -> User | None:
        """Return the user with this name, including disabled users and users of other modes."""
        normalized = normalize_name(name)
        return None if normalized is None else await self._storage.find_user_by_name(normalized)

    async def _touch_user(self, user: User, now: float) -> None:
        if _is_last_seen_stale(user.last_seen, now):
            await self._storage.touch_user(user.id, now)

    def _require_password_mode(self) -> None:
        if self._settings.people_mode is not PeopleMode.PASSWORD:
            raise NotAllowed(
                f"password sign-in is not available in {self._settings.people_mode} mode",
                hint="to use passwords, set people_mode to password",
            )


def _has_been_used(user: User) -> bool:
    """Return whether the account has been used, rather than only created."""
    return user.has_password or user.last_seen is not None


def _is_last_seen_stale(last_seen: float | None, now: float) -> bool:
    return last_seen is None or not is_recent(last_seen, now, _USER_TOUCH_SECONDS)
