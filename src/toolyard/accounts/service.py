"""People: signing in and out, sessions, tokens, links; the one place that decides who is calling."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from toolyard.accounts.account_status import Identity, standing
from toolyard.accounts.api_tokens import check_scope, is_token, new_token
from toolyard.accounts.attempt_limits import Limits, guest_counters, network_of, owner_counters
from toolyard.accounts.browser_sessions import new_session, slid
from toolyard.accounts.device_cookies import Device
from toolyard.accounts.errors import Invalid, NameTaken, NotAllowed, SignInRefused
from toolyard.accounts.oidc.provisioning import provider_account
from toolyard.accounts.passwords import Passwords, check_password
from toolyard.accounts.random_secrets import digest, is_secret, new_secret
from toolyard.accounts.storage import PeopleStorage
from toolyard.accounts.user_names import as_name, checked_name, free_names
from toolyard.config.settings.choices import PeopleMode
from toolyard.config.settings.table import Settings
from toolyard.errors import Problem
from toolyard.types.account import (
    ApiToken,
    Invite,
    Notice,
    NoticeKind,
    Right,
    Role,
    Session,
    TokenScope,
    User,
)
from toolyard.types.clock import is_future, is_recent
from toolyard.types.principal import LOCAL

__all__ = ["INVITE_LIFE", "People"]

INVITE_LIFE = 86_400.0
"""Seconds for which a link works."""

_WITH_SESSIONS = (PeopleMode.PASSWORD, PeopleMode.OIDC)
_TOUCH_USER = 300.0
_TOUCH_TOKEN = 60.0
_MOST_TOKENS = 200
_LONGEST_TOKEN_NAME = 100
_LONGEST_TOKEN_LIFE = 10 * 366 * 86_400.0


class People:
    """Who is calling. What is presented is looked up by its hash; whoever it names counts as far as the mode
    and the settings let them, and no further."""

    def __init__(
        self,
        storage: PeopleStorage,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.time,
        passwords: Passwords | None = None,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._clock = clock
        self._passwords = passwords or Passwords()
        self._limits = Limits(storage, clock)
        self._local: User | None = None

    # Passwords.

    async def sign_in(
        self, name: str, password: str, address: str, *, device: Device | None = None, user_agent: str = ""
    ) -> tuple[User, str]:
        """The user and the text of a new cookie. ``device``: a browser that somebody signed in with before.

        Raises TooManySignIns, or SignInRefused, which does not say what was wrong.
        """
        self._only_with_passwords()
        user = await self.find(name)
        if device is not None and user is not None and device.user_id == user.id:
            counters = owner_counters(f"device:{device.id}")
        else:
            counters = guest_counters(name, address)
        await self._limits.check(counters)
        async with self._passwords.turn:
            # Again: a crowd that was let in at once must not all get a guess.
            await self._limits.check(counters)
            stored = await self._storage.password_hash(user.id if user is not None else "")
            fits = await self._passwords.verify(password, stored)
            if not fits or user is None or stored is None or user.disabled:
                await self._limits.failed(counters)
                raise SignInRefused("name or password is wrong", hint="check both, and try again")
            if self._passwords.is_outdated(stored):
                await self._storage.set_password_hash(user.id, await self._passwords.hash(password))
        await self._limits.succeeded(counters)
        return user, await self.begin_session(user, address, user_agent)

    async def change_password(
        self, user: User, old: str, new: str, address: str, *, user_agent: str = ""
    ) -> str:
        """Set another password; every browser is signed out, and this one gets the cookie that is returned.

        Raises Invalid, SignInRefused or TooManySignIns.
        """
        self._only_with_passwords()
        check_password(new, "new_password")
        # Whoever is signed in is not slowed down by the failures of strangers.
        counters = owner_counters(f"change:{user.id}")
        await self._limits.check(counters)
        async with self._passwords.turn:
            await self._limits.check(counters)
            if not await self._passwords.verify(old, await self._storage.password_hash(user.id)):
                await self._limits.failed(counters)
                raise SignInRefused("the old password is wrong", hint="check it, and try again")
            hashed = await self._passwords.hash(new)
        await self._limits.succeeded(counters)
        await self._storage.set_password_hash(user.id, hashed)
        await self._storage.end_sessions(user.id)
        return await self.begin_session(user, address, user_agent)

    async def invite(self, name: str, role: Role, *, by: str = "") -> str:
        """Return the text of a link for the user of this name; see ``invite_user``.

        Somebody new gets the role; one who exists already keeps theirs. Raises Invalid or NotAllowed.
        """
        self._only_with_passwords()
        name = checked_name(name)
        user = await self._storage.user_named(name) or await self._added(name, role)
        return await self.invite_user(user, by=by)

    async def invite_user(self, user: User, *, by: str = "") -> str:
        """Return a text that works once, for a day: whoever has it sets the password of this user.

        It is bound to the account, and is void once the account is renamed or disabled, or gets another
        password or another link. Somebody who has used the account is told on their pages, with ``by`` as the
        one who made the link. Raises NotAllowed.
        """
        self._only_with_passwords()
        if user.id == LOCAL.id:
            raise NotAllowed(f"'{user.name}' is whoever sits at this machine, and has no password")
        text = new_secret()
        now = self._clock()
        await self._storage.put_invite(digest(text), Invite(user.id, now + INVITE_LIFE, by))
        if _was_used(user):
            await self._storage.set_notice(user.id, Notice(NoticeKind.LINK_MADE, now, by))
        return text

    async def _added(self, name: str, role: Role) -> User:
        try:
            return await self._storage.add_user(name, role)
        except NameTaken:
            # Another replica did so in the meantime, as all do that start together for the first time.
            user = await self._storage.user_named(name)
            if user is None:
                raise
            return user

    async def invited(self, text: str) -> User | None:
        """Return the user whose password a link sets, without using it up."""
        if not is_secret(text) or self._settings.people_mode is not PeopleMode.PASSWORD:
            return None
        return await self._user_of(await self._storage.invite(digest(text), self._clock()))

    async def accept(
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
        self._only_with_passwords()
        check_password(password)
        refused = SignInRefused(
            "this link is unknown, was used before, or is older than a day", hint="ask an admin for a new one"
        )
        if not is_secret(text):
            raise refused
        async with self._passwords.turn:
            hashed = await self._passwords.hash(password)
        invite = await self._storage.take_invite(digest(text), self._clock())
        user = await self._user_of(invite)
        if user is None or invite is None:
            raise refused
        used = Notice(NoticeKind.LINK_USED, self._clock(), invite.made_by) if _was_used(user) else None
        await self._storage.reset_password(user.id, hashed, used, revoke_tokens=revoke_tokens)
        cookie = await self.begin_session(user, address, user_agent)
        return await self._storage.user(user.id) or user, cookie

    async def dismiss_notice(self, user: User) -> None:
        """The person has read their notice."""
        await self._storage.set_notice(user.id, None)

    async def _user_of(self, invite: Invite | None) -> User | None:
        if invite is None or is_future(invite.expires_at - INVITE_LIFE, self._clock()):
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
        session = new_session(text, user, now, network_of(address), user_agent)
        await self._storage.add_session(digest(text), session)
        await self._storage.touch_user(user.id, now)
        return text

    async def from_cookie(self, text: str, address: str | None = None) -> tuple[Session, User] | None:
        """Who is signed in with this cookie, if anybody. ``address``: where this request comes from."""
        if not is_secret(text) or self._settings.people_mode not in _WITH_SESSIONS:
            return None
        now, key = self._clock(), digest(text)
        found = await self._storage.session(key, now)
        if found is None:
            return None
        session, user = found
        if is_future(session.created_at, now):
            return None
        counted = standing(user, self._settings)
        if counted is None:
            return None
        later = slid(session, now)
        if later is not session:
            await self._storage.extend_session(key, later.expires_at)
        network = session.network if address is None else network_of(address)
        if _is_stale(session.last_seen, now) or network != session.network:
            await self._storage.touch_session(key, now, network)
        await self._touch(counted, now)
        return later, counted

    async def sessions(self, user: User) -> Sequence[Session]:
        """Return the browsers that a user is signed in with, the most recently used first."""
        return await self._storage.sessions(user.id, self._clock())

    async def end_session(self, user: User, session_id: str) -> bool:
        """Sign out one browser of a user. False: it is not one of theirs, or was signed out before."""
        return await self._storage.end_session_of(user.id, session_id)

    async def sign_out(self, text: str) -> None:
        """End the session of this cookie."""
        await self._storage.end_session(digest(text))

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
        if not label or len(label) > _LONGEST_TOKEN_NAME or not label.isprintable():
            message = f"a token has a name of 1 to {_LONGEST_TOKEN_NAME} characters"
            problems.append(Problem(message, path="name"))
        if expires_in is not None and not 0 < expires_in <= _LONGEST_TOKEN_LIFE:
            problems.append(Problem("a token lives for up to ten years, or for ever", path="expires_in"))
        if problems:
            raise Invalid(problems)
        check_scope(scope)
        if Right.ADMIN in scope.rights and user.role is not Role.ADMIN:
            raise NotAllowed("only admins can make tokens with the right admin")
        if len(await self._storage.tokens(user.id)) >= _MOST_TOKENS:
            hint = "delete those that nobody uses"
            raise Invalid([Problem(f"there are {_MOST_TOKENS} tokens already", path="name", hint=hint)])
        now, text = self._clock(), new_token()
        expires_at = None if expires_in is None else now + expires_in
        token = ApiToken(new_secret()[:16], user.id, label, scope, now, expires_at)
        await self._storage.add_token(digest(text), token)
        return token, text

    async def from_token(self, text: str) -> tuple[ApiToken, User] | None:
        """Whose token this is, if anybody's."""
        if not is_token(text):
            return None
        now = self._clock()
        found = await self._storage.token(digest(text), now)
        if found is None:
            return None
        token, user = found
        counted = standing(user, self._settings)
        if counted is None:
            return None
        if token.last_used_at is None or not is_recent(token.last_used_at, now, _TOUCH_TOKEN):
            await self._storage.touch_token(token.id, now)
        await self._touch(counted, now)
        return token, counted

    # Those who prove nothing to us themselves.

    async def local_user(self) -> User:
        """Whoever sits at this machine, in the mode none."""
        if self._local is None:
            known = await self._storage.user(LOCAL.id) or await self._add(LOCAL.name, Role.ADMIN, LOCAL.id)
            self._local = standing(known, self._settings)
        if self._local is None:
            raise NotAllowed("there is a local user in the mode none only")
        return self._local

    async def from_proxy(self, name: str) -> User:
        """Whom the proxy names; an account is made at first sight. Raises NotAllowed.

        The proxy tells people apart, so its spelling counts: what is another name there must not be the same
        account here.
        """
        if self._settings.people_mode is not PeopleMode.PROXY:
            raise NotAllowed("a proxy names people in the mode proxy only")
        if as_name(name) != name:
            raise NotAllowed(
                "the proxy sent a name that cannot be used", hint="names have 1 to 100 visible characters"
            )
        user = await self._storage.user_named(name) or await self._add(name, Role.USER)
        counted = standing(user, self._settings)
        if counted is None or user.name != name:
            raise NotAllowed(
                f"the name '{name}' belongs to another account, '{user.name}'",
                hint="have the proxy send each name in one spelling, or delete that account: "
                f"toolyard users delete '{user.name}'",
            )
        if user.disabled:
            raise NotAllowed("this account is disabled", hint="ask an admin")
        await self._touch(counted, self._clock())
        return counted

    async def from_provider(self, identity: Identity) -> User:
        """Return whom an access token of the identity provider names; the first one adds the account.

        Raises NotAllowed.
        """
        user = await provider_account(self._storage, identity, complete=False)
        counted = standing(user, self._settings)
        if counted is None:
            raise NotAllowed("this account is of another identity provider", hint="check oidc_issuer")
        await self._touch(counted, self._clock())
        return counted

    async def find(self, name: str) -> User | None:
        """The user of that name, whatever their standing."""
        fit = as_name(name)
        return None if fit is None else await self._storage.user_named(fit)

    async def _add(self, name: str, role: Role, user_id: str | None = None) -> User:
        """Make an account that is identified by something else than its name, or by its name alone."""
        for free in free_names(name):
            try:
                return await self._storage.add_user(free, role, user_id=user_id)
            except NameTaken:
                # Two first requests at once: the other one made it.
                known = await (
                    self._storage.user_named(name) if user_id is None else self._storage.user(user_id)
                )
                if known is not None:
                    return known
        raise NameTaken(f"every name like '{name}' is taken")

    async def _touch(self, user: User, now: float) -> None:
        if _is_stale(user.last_seen, now):
            await self._storage.touch_user(user.id, now)

    def _only_with_passwords(self) -> None:
        if self._settings.people_mode is not PeopleMode.PASSWORD:
            raise NotAllowed(
                f"passwords do not count in the mode {self._settings.people_mode}",
                hint="set people_mode to password to use them",
            )


def _was_used(user: User) -> bool:
    """Tell an account that somebody has used from one that waits for its first visit."""
    return user.has_password or user.last_seen is not None


def _is_stale(last_seen: float | None, now: float) -> bool:
    return last_seen is None or not is_recent(last_seen, now, _TOUCH_USER)
