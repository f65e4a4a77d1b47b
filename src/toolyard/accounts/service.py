"""People: signing in and out, sessions, tokens, links; the one place that decides who is calling."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from toolyard.accounts.account_status import Identity, resolve_effective_user
from toolyard.accounts.api_tokens import check_scope, is_token, new_token
from toolyard.accounts.attempt_limits import SignInLimiter, address_network, guest_counters, owner_counters
from toolyard.accounts.browser_sessions import build_session, with_extended_expiry
from toolyard.accounts.device_cookies import Device
from toolyard.accounts.errors import Invalid, NameTaken, NotAllowed, SignInRefused
from toolyard.accounts.oidc.provisioning import find_or_create_account
from toolyard.accounts.passwords import AsyncPasswordHasher, check_password
from toolyard.accounts.random_secrets import hash_secret, is_secret, new_secret
from toolyard.accounts.storage import AccountStorage
from toolyard.accounts.user_names import candidate_names, normalize_name, validate_name
from toolyard.config.settings.choices import PeopleMode
from toolyard.config.settings.table import Settings
from toolyard.errors import Problem
from toolyard.types.account import (
    ApiToken,
    BrowserSession,
    Invite,
    Notice,
    NoticeKind,
    Right,
    Role,
    TokenScope,
    User,
)
from toolyard.types.clock import is_future, is_recent
from toolyard.types.principal import LOCAL_PRINCIPAL

__all__ = ["INVITE_LIFETIME_SECONDS", "AccountService"]

INVITE_LIFETIME_SECONDS = 86_400.0
"""Seconds for which a link works."""

_SESSION_MODES = (PeopleMode.PASSWORD, PeopleMode.OIDC)
_USER_TOUCH_SECONDS = 300.0
_TOKEN_TOUCH_SECONDS = 60.0
_MAX_TOKENS_PER_USER = 200
_MAX_TOKEN_NAME_CHARACTERS = 100
_MAX_TOKEN_LIFETIME_SECONDS = 10 * 366 * 86_400.0


class AccountService:
    """Who is calling. What is presented is looked up by its hash; whoever it names counts as far as the mode
    and the settings let them, and no further."""

    def __init__(
        self,
        storage: AccountStorage,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.time,
        passwords: AsyncPasswordHasher | None = None,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._clock = clock
        self._passwords = passwords or AsyncPasswordHasher()
        self._sign_in_limiter = SignInLimiter(storage, clock)
        self._cached_local_user: User | None = None

    # Passwords.

    async def sign_in(
        self, name: str, password: str, address: str, *, device: Device | None = None, user_agent: str = ""
    ) -> tuple[User, str]:
        """The user and the text of a new cookie. ``device``: a browser that somebody signed in with before.

        Raises TooManySignIns, or SignInRefused, which does not say what was wrong.
        """
        self._require_password_mode()
        user = await self.find_user(name)
        if device is not None and user is not None and device.user_id == user.id:
            counters = owner_counters(f"device:{device.id}")
        else:
            counters = guest_counters(name, address)
        await self._sign_in_limiter.check(counters)
        async with self._passwords.hash_slots:
            # Again: a crowd that was let in at once must not all get a guess.
            await self._sign_in_limiter.check(counters)
            stored = await self._storage.get_password_hash(user.id if user is not None else "")
            fits = await self._passwords.verify(password, stored)
            if not fits or user is None or stored is None or user.disabled:
                await self._sign_in_limiter.record_failure(counters)
                raise SignInRefused("name or password is wrong", hint="check both, and try again")
            if self._passwords.is_outdated(stored):
                await self._storage.set_password_hash(user.id, await self._passwords.hash(password))
        await self._sign_in_limiter.record_success(counters)
        return user, await self.begin_session(user, address, user_agent)

    async def change_password(
        self, user: User, old: str, new: str, address: str, *, user_agent: str = ""
    ) -> str:
        """Set another password; every browser is signed out, and this one gets the cookie that is returned.

        Raises Invalid, SignInRefused or TooManySignIns.
        """
        self._require_password_mode()
        check_password(new, "new_password")
        # Whoever is signed in is not slowed down by the failures of strangers.
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
        """Return the text of a link for the user of this name; see ``invite_user``.

        Somebody new gets the role; one who exists already keeps theirs. Raises Invalid or NotAllowed.
        """
        self._require_password_mode()
        name = validate_name(name)
        user = await self._storage.find_user_by_name(name) or await self._find_or_add_user(name, role)
        return await self.invite_user(user, by=by)

    async def invite_user(self, user: User, *, by: str = "") -> str:
        """Return a text that works once, for a day: whoever has it sets the password of this user.

        It is bound to the account, and is void once the account is renamed or disabled, or gets another
        password or another link. Somebody who has used the account is told on their pages, with ``by`` as the
        one who made the link. Raises NotAllowed.
        """
        self._require_password_mode()
        if user.id == LOCAL_PRINCIPAL.id:
            raise NotAllowed(f"'{user.name}' is whoever sits at this machine, and has no password")
        text = new_secret()
        now = self._clock()
        await self._storage.put_invite(hash_secret(text), Invite(user.id, now + INVITE_LIFETIME_SECONDS, by))
        if _has_been_used(user):
            await self._storage.set_notice(user.id, Notice(NoticeKind.LINK_MADE, now, by))
        return text

    async def _find_or_add_user(self, name: str, role: Role) -> User:
        try:
            return await self._storage.add_user(name, role)
        except NameTaken:
            # Another replica did so in the meantime, as all do that start together for the first time.
            user = await self._storage.find_user_by_name(name)
            if user is None:
                raise
            return user

    async def find_invited_user(self, text: str) -> User | None:
        """Return the user whose password a link sets, without using it up."""
        if not is_secret(text) or self._settings.people_mode is not PeopleMode.PASSWORD:
            return None
        return await self._find_invite_user(await self._storage.find_invite(hash_secret(text), self._clock()))

    async def accept_invite(
        self,
        text: str,
        password: str,
        *,
        address: str = "",
        user_agent: str = "",
        revoke_tokens: bool = False,
    ) -> tuple[User, str]:
        """Set the password of whom the link is for; the user and the text of a new cookie.

        Whoever holds the link may not be that person. So their sessions end, the credentials that they stored
        for servers are removed, and a notice tells them. Their tokens stay unless ``revoke_tokens``.

        Raises Invalid, and keeps the link; or SignInRefused.
        """
        self._require_password_mode()
        check_password(password)
        refused = SignInRefused(
            "this link is unknown, was used before, or is older than a day", hint="ask an admin for a new one"
        )
        if not is_secret(text):
            raise refused
        async with self._passwords.hash_slots:
            hashed = await self._passwords.hash(password)
        invite = await self._storage.take_invite(hash_secret(text), self._clock())
        user = await self._find_invite_user(invite)
        if user is None or invite is None:
            raise refused
        used = Notice(NoticeKind.LINK_USED, self._clock(), invite.made_by) if _has_been_used(user) else None
        await self._storage.reset_password(user.id, hashed, used, revoke_tokens=revoke_tokens)
        cookie = await self.begin_session(user, address, user_agent)
        return await self._storage.user(user.id) or user, cookie

    async def dismiss_notice(self, user: User) -> None:
        """The person has read their notice."""
        await self._storage.set_notice(user.id, None)

    async def _find_invite_user(self, invite: Invite | None) -> User | None:
        if invite is None or is_future(invite.expires_at - INVITE_LIFETIME_SECONDS, self._clock()):
            return None
        user = await self._storage.user(invite.user_id)
        return None if user is None or user.disabled else user

    async def has_admin(self) -> bool:
        """Whether an admin could sign in with a password."""
        users = await self._storage.users()
        return any(each.role is Role.ADMIN and each.has_password and not each.disabled for each in users)

    # Browsers.

    async def begin_session(self, user: User, address: str = "", user_agent: str = "") -> str:
        """Sign in a browser; the text of its cookie, which is nowhere else."""
        now, text = self._clock(), new_secret()
        session = build_session(text, user, now, address_network(address), user_agent)
        await self._storage.add_session(hash_secret(text), session)
        await self._storage.touch_user(user.id, now)
        return text

    async def authenticate_cookie(
        self, text: str, address: str | None = None
    ) -> tuple[BrowserSession, User] | None:
        """Who is signed in with this cookie, if anybody. ``address``: where this request comes from."""
        if not is_secret(text) or self._settings.people_mode not in _SESSION_MODES:
            return None
        now, key = self._clock(), hash_secret(text)
        found = await self._storage.find_session(key, now)
        if found is None:
            return None
        session, user = found
        if is_future(session.created_at, now):
            return None
        counted = resolve_effective_user(user, self._settings)
        if counted is None:
            return None
        later = with_extended_expiry(session, now)
        if later is not session:
            await self._storage.extend_session(key, later.expires_at)
        network = session.network if address is None else address_network(address)
        if _is_last_seen_stale(session.last_seen, now) or network != session.network:
            await self._storage.touch_session(key, now, network)
        await self._touch_user(counted, now)
        return later, counted

    async def list_sessions(self, user: User) -> Sequence[BrowserSession]:
        """Return the browsers that a user is signed in with, the most recently used first."""
        return await self._storage.list_sessions(user.id, self._clock())

    async def end_session(self, user: User, session_id: str) -> bool:
        """Sign out one browser of a user. False: it is not one of theirs, or was signed out before."""
        return await self._storage.end_user_session(user.id, session_id)

    async def sign_out(self, text: str) -> None:
        """End the session of this cookie."""
        await self._storage.end_session(hash_secret(text))

    async def sign_out_everywhere(self, user: User) -> None:
        """End every session of a user. Tokens stay."""
        await self._storage.end_sessions(user.id)

    # Tokens.

    @property
    def token_lifetime(self) -> float | None:
        """Seconds for which a token works if its owner chooses nothing else; None: for ever."""
        return self._settings.token_lifetime * 86_400.0 or None

    async def make_token(
        self, user: User, name: str, scope: TokenScope, expires_in: float | None
    ) -> tuple[ApiToken, str]:
        """A new token and its text, which is shown this once. Raises Invalid or NotAllowed."""
        problems: list[Problem] = []
        label = " ".join(name.split())
        if not label or len(label) > _MAX_TOKEN_NAME_CHARACTERS or not label.isprintable():
            message = f"a token has a name of 1 to {_MAX_TOKEN_NAME_CHARACTERS} characters"
            problems.append(Problem(message, path="name"))
        if expires_in is not None and not 0 < expires_in <= _MAX_TOKEN_LIFETIME_SECONDS:
            problems.append(Problem("a token lives for up to ten years, or for ever", path="expires_in"))
        if problems:
            raise Invalid(problems)
        check_scope(scope)
        if Right.ADMIN in scope.rights and user.role is not Role.ADMIN:
            raise NotAllowed("only admins can make tokens with the right admin")
        if len(await self._storage.tokens(user.id)) >= _MAX_TOKENS_PER_USER:
            hint = "delete those that nobody uses"
            raise Invalid(
                [Problem(f"there are {_MAX_TOKENS_PER_USER} tokens already", path="name", hint=hint)]
            )
        now, text = self._clock(), new_token()
        expires_at = None if expires_in is None else now + expires_in
        token = ApiToken(new_secret()[:16], user.id, label, scope, now, expires_at)
        await self._storage.add_token(hash_secret(text), token)
        return token, text

    async def authenticate_token(self, text: str) -> tuple[ApiToken, User] | None:
        """Whose token this is, if anybody's."""
        if not is_token(text):
            return None
        now = self._clock()
        found = await self._storage.find_token(hash_secret(text), now)
        if found is None:
            return None
        token, user = found
        counted = resolve_effective_user(user, self._settings)
        if counted is None:
            return None
        if token.last_used_at is None or not is_recent(token.last_used_at, now, _TOKEN_TOUCH_SECONDS):
            await self._storage.touch_token(token.id, now)
        await self._touch_user(counted, now)
        return token, counted

    # Those who prove nothing to us themselves.

    async def local_user(self) -> User:
        """Whoever sits at this machine, in the mode none."""
        if self._cached_local_user is None:
            known = await self._storage.user(LOCAL_PRINCIPAL.id) or await self._add_account(
                LOCAL_PRINCIPAL.name, Role.ADMIN, LOCAL_PRINCIPAL.id
            )
            self._cached_local_user = resolve_effective_user(known, self._settings)
        if self._cached_local_user is None:
            raise NotAllowed("there is a local user in the mode none only")
        return self._cached_local_user

    async def authenticate_proxy_name(self, name: str) -> User:
        """Whom the proxy names; an account is made at first sight. Raises NotAllowed.

        The proxy tells people apart, so its spelling counts: what is another name there must not be the same
        account here.
        """
        if self._settings.people_mode is not PeopleMode.PROXY:
            raise NotAllowed("a proxy names people in the mode proxy only")
        if normalize_name(name) != name:
            raise NotAllowed(
                "the proxy sent a name that cannot be used", hint="names have 1 to 100 visible characters"
            )
        user = await self._storage.find_user_by_name(name) or await self._add_account(name, Role.USER)
        counted = resolve_effective_user(user, self._settings)
        if counted is None or user.name != name:
            raise NotAllowed(
                f"the name '{name}' belongs to another account, '{user.name}'",
                hint="have the proxy send each name in one spelling, or delete that account: "
                f"toolyard users delete '{user.name}'",
            )
        if user.disabled:
            raise NotAllowed("this account is disabled", hint="ask an admin")
        await self._touch_user(counted, self._clock())
        return counted

    async def authenticate_identity(self, identity: Identity) -> User:
        """Return whom an access token of the identity provider names; the first one adds the account.

        Raises NotAllowed.
        """
        user = await find_or_create_account(self._storage, identity, complete=False)
        counted = resolve_effective_user(user, self._settings)
        if counted is None:
            raise NotAllowed("this account is of another identity provider", hint="check oidc_issuer")
        await self._touch_user(counted, self._clock())
        return counted

    async def find_user(self, name: str) -> User | None:
        """The user of that name, whatever their standing."""
        fit = normalize_name(name)
        return None if fit is None else await self._storage.find_user_by_name(fit)

    async def _add_account(self, name: str, role: Role, user_id: str | None = None) -> User:
        """Make an account that is identified by something else than its name, or by its name alone."""
        for free in candidate_names(name):
            try:
                return await self._storage.add_user(free, role, user_id=user_id)
            except NameTaken:
                # Two first requests at once: the other one made it.
                known = await (
                    self._storage.find_user_by_name(name) if user_id is None else self._storage.user(user_id)
                )
                if known is not None:
                    return known
        raise NameTaken(f"every name like '{name}' is taken")

    async def _touch_user(self, user: User, now: float) -> None:
        if _is_last_seen_stale(user.last_seen, now):
            await self._storage.touch_user(user.id, now)

    def _require_password_mode(self) -> None:
        if self._settings.people_mode is not PeopleMode.PASSWORD:
            raise NotAllowed(
                f"passwords do not count in the mode {self._settings.people_mode}",
                hint="set people_mode to password to use them",
            )


def _has_been_used(user: User) -> bool:
    """Tell an account that somebody has used from one that waits for its first visit."""
    return user.has_password or user.last_seen is not None


def _is_last_seen_stale(last_seen: float | None, now: float) -> bool:
    return last_seen is None or not is_recent(last_seen, now, _USER_TOUCH_SECONDS)
