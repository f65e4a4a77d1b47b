"""Storage of users, sessions, tokens, invites and failed sign-ins."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

import orjson
from sqlalchemy import Connection, bindparam, delete, func, or_, select, true, update

from toolyard.errors import NameTaken
from toolyard.store.change_feed.signals import (
    REGISTRY_CHANNEL,
    REMOVED_CREDENTIALS_CHANNEL,
    REVOKED_ACCESS_CHANNEL,
    Signals,
)
from toolyard.store.repositories.cascades import delete_credential_rows, delete_user_rows
from toolyard.store.repositories.rows import delete_all_but_newest, secret_location
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.dialects import insert_if_absent, raise_if_violated, upsert
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction, transaction_by_key
from toolyard.store.sql.stored_values import compute_digest, fold_case
from toolyard.store.sql.tables import api_tokens, attempts, invites, sessions, sign_ins, users
from toolyard.types.account import (
    AccountNotice,
    AccountNoticeKind,
    ApiToken,
    AttemptCount,
    BrowserSession,
    Invite,
    Right,
    Role,
    TokenScope,
    User,
)

__all__ = ["MAX_STORED_ATTEMPTS", "SqlAccountStorage"]

_DAY_SECONDS = 86_400.0
_ATTEMPT_WINDOW_SECONDS = 3_600.0
"""Period in which failed sign-ins count; longer than any limit, and than clocks of replicas differ."""

MAX_STORED_ATTEMPTS = 300_000
"""Maximum number of stored failed sign-ins. Checking passwords is so slow that the attempts of the last
quarter of an hour, which the limits count, are never among the oldest ones."""

_MAX_SESSIONS_PER_USER = 100
_MAX_PENDING_SIGN_INS = 50_000
"""Maximum number of started sign-ins at the identity provider. Nobody is known by then, so there is only one
limit for all; one network may start few at a time."""

_USER_COLUMNS = (
    users.c.id,
    users.c.name,
    users.c.role,
    users.c.created_at,
    users.c.disabled,
    users.c.password_hash.is_not(None).label("has_password"),
    users.c.subject,
    users.c.last_seen,
    users.c.verified_email,
    users.c.notice,
    users.c.client_seen_at,
    users.c.first_steps_hidden_at,
)
_SESSION_COLUMNS = tuple(
    column.label(f"session_{column.name}") for column in sessions.c if column.name != "digest"
)
_TOKEN_COLUMNS = tuple(
    column.label(f"token_{column.name}") for column in api_tokens.c if column.name != "digest"
)

_SELECT_INVITES = select(*(invites.c[each.name] for each in fields(Invite)))
# Built once, since they run with every request.
_SELECT_BY_SESSION = (
    select(*_SESSION_COLUMNS, *_USER_COLUMNS)
    .join(users, users.c.id == sessions.c.user_id)
    .where(sessions.c.digest == bindparam("of"), sessions.c.expires_at > bindparam("now"))
    .where(users.c.disabled.is_(False))
)
_SELECT_BY_TOKEN = (
    select(*_TOKEN_COLUMNS, *_USER_COLUMNS)
    .join(users, users.c.id == api_tokens.c.user_id)
    .where(api_tokens.c.digest == bindparam("of"))
    .where(or_(api_tokens.c.expires_at.is_(None), api_tokens.c.expires_at > bindparam("now")))
    .where(users.c.disabled.is_(False))
)


class SqlAccountStorage(Repository):
    """Storage of users, sessions, tokens, invites and failed sign-ins, shared by all replicas.

    All replicas are notified about users who lose access through a change. ``digest`` is always the hash of a
    secret; secrets themselves are never stored. Times are Unix times in seconds.
    """

    def __init__(
        self,
        executor: DatabaseExecutor,
        cipher: Cipher,
        clock: Callable[[], float],
        signals: Signals,
        *,
        max_attempts: int = MAX_STORED_ATTEMPTS,
        max_sessions_per_user: int = _MAX_SESSIONS_PER_USER,
        max_pending_sign_ins: int = _MAX_PENDING_SIGN_INS,
    ) -> None:
        super().__init__(executor)
        self._max_sessions_per_user = max_sessions_per_user
        self._max_pending_sign_ins = max_pending_sign_ins
        self._max_attempts = max_attempts
        self._cipher = cipher
        self._clock = clock
        self._signals = signals

    # Users.

    async def get_user(self, user_id: str) -> User | None:
        return await self._find_user(users.c.id == user_id)

    async def find_user_by_name(self, name: str) -> User | None:
        """Return the user with this name, ignoring case."""
        return await self._find_user(users.c.name_key == fold_case(name))

    async def find_user_by_subject(self, subject: str) -> User | None:
        return await self._find_user(users.c.subject == subject)

    async def list_users(self) -> Sequence[User]:
        """Return all users, sorted by name."""
        all_users = await self._executor.fetch_all(select(*_USER_COLUMNS), _user_from_row)
        return sorted(all_users, key=lambda user: (fold_case(user.name), user.name))

    @transaction
    def add_user(
        self,
        connection: Connection,
        name: str,
        role: Role,
        *,
        user_id: str | None = None,
        subject: str | None = None,
    ) -> User:
        """Add a user; ``user_id`` None generates an id. Raises NameTaken if the name or subject is in use."""
        user = User(user_id or secrets.token_hex(12), name, role, self._clock(), subject=subject)
        values = {
            "id": user.id,
            "name": name,
            "name_key": fold_case(name),
            "role": role.value,
            "created_at": user.created_at,
            "disabled": False,
            "subject": subject,
        }
        if not insert_if_absent(connection, users, values):
            raise _name_taken_error(name)
        return user

    async def set_role(self, user_id: str, role: Role) -> None:
        await self._execute_and_revoke(
            update(users).where(users.c.id == user_id).values(role=role.value), user_id
        )

    @transaction
    def set_verified_email(self, connection: Connection, user_id: str, email: str | None) -> None:
        """Store the address in lower case, and remove it from any other account."""
        # An address belongs to one account. An account that loses it may also lose a role that the
        # setting ``admins`` gives by address, so its cached access must be dropped in all replicas.
        others = update(users).where(users.c.verified_email == email, users.c.id != user_id)
        if email is not None:
            former_owners = connection.execute(others.values(verified_email=None).returning(users.c.id))
            for other_id in former_owners.scalars().all():
                self._signals.notify(connection, REVOKED_ACCESS_CHANNEL, other_id)
        connection.execute(update(users).where(users.c.id == user_id).values(verified_email=email))
        self._signals.notify(connection, REVOKED_ACCESS_CHANNEL, user_id)

    @transaction
    def rename_user(self, connection: Connection, user_id: str, name: str) -> None:
        """Rename the user, and void their invite. Raises NameTaken."""
        statement = update(users).where(users.c.id == user_id).values(name=name, name_key=fold_case(name))
        with raise_if_violated("unique", _name_taken_error(name)):
            connection.execute(statement)
        connection.execute(delete(invites).where(invites.c.user_id == user_id))

    @transaction_by_key(None)
    def set_disabled(self, connection: Connection, user_id: str, disabled: bool) -> None:
        """Disable or enable the user. Disabling also ends their sessions and voids their invite."""
        connection.execute(update(users).where(users.c.id == user_id).values(disabled=disabled))
        if disabled:
            for table in (sessions, invites):
                connection.execute(delete(table).where(table.c.user_id == user_id))
            for channel in (REVOKED_ACCESS_CHANNEL, REMOVED_CREDENTIALS_CHANNEL):
                self._signals.notify(connection, channel, user_id)

    @transaction_by_key(None)
    def delete_user(self, connection: Connection, user_id: str) -> None:
        """Delete the user with their sessions, tokens, and instances including sign-ins."""
        delete_user_rows(connection, user_id)
        for channel in (REVOKED_ACCESS_CHANNEL, REMOVED_CREDENTIALS_CHANNEL):
            self._signals.notify(connection, channel, user_id)

    async def touch_user(self, user_id: str, now: float) -> None:
        await self._update_user(user_id, last_seen=now)

    async def get_password_hash(self, user_id: str) -> str | None:
        query = select(users.c.password_hash).where(users.c.id == user_id)
        return await self._executor.fetch_value(query)

    @transaction_by_key(None)
    def set_password_hash(self, connection: Connection, user_id: str, password_hash: str | None) -> None:
        """Store the hash, and void the user's invite."""
        connection.execute(update(users).where(users.c.id == user_id).values(password_hash=password_hash))
        connection.execute(delete(invites).where(invites.c.user_id == user_id))

    @transaction_by_key(None)
    def reset_password(
        self,
        connection: Connection,
        user_id: str,
        password_hash: str,
        notice: AccountNotice | None,
        *,
        revoke_tokens: bool,
    ) -> None:
        """Set the password for the holder of an invite link, who may not be the account's owner.

        Atomically also ends the user's sessions, deletes the credentials stored for servers, stores the
        notice and, with ``revoke_tokens``, deletes the API tokens.
        """
        values = {"password_hash": password_hash, "notice": _notice_text(notice)}
        connection.execute(update(users).where(users.c.id == user_id).values(**values))
        for table in (sessions, invites, *((api_tokens,) if revoke_tokens else ())):
            connection.execute(delete(table).where(table.c.user_id == user_id))
        delete_credential_rows(connection, user_id)
        for channel in (REVOKED_ACCESS_CHANNEL, REMOVED_CREDENTIALS_CHANNEL, REGISTRY_CHANNEL):
            self._signals.notify(connection, channel, user_id)

    async def set_notice(self, user_id: str, notice: AccountNotice | None) -> None:
        await self._update_user(user_id, notice=_notice_text(notice))

    async def set_client_seen(self, user_id: str, at: float) -> None:
        await self._update_user(user_id, client_seen_at=at)

    async def set_first_steps_hidden(self, user_id: str, at: float | None) -> None:
        await self._update_user(user_id, first_steps_hidden_at=at)

    async def has_several_users(self) -> bool:
        return len(await self._executor.fetch_rows(select(users.c.id).limit(2))) > 1

    async def _find_user(self, condition: Any) -> User | None:
        return await self._executor.fetch_one(select(*_USER_COLUMNS).where(condition), _user_from_row)

    async def _update_user(self, user_id: str, **values: Any) -> None:
        await self._executor.execute_by_key(update(users).where(users.c.id == user_id).values(**values))

    async def _execute_and_revoke(self, statement: Any, user_id: str) -> bool:
        """Execute a statement by which the user may lose access. Return whether it changed any rows."""
        return await self._signals.execute(statement, REVOKED_ACCESS_CHANNEL, user_id) > 0

    # Browser sessions.

    @transaction
    def add_session(self, connection: Connection, digest: str, session: BrowserSession) -> None:
        """Add a session, and delete expired ones and the user's least recently used ones beyond a limit."""
        connection.execute(delete(sessions).where(sessions.c.expires_at < self._clock()))
        connection.execute(sessions.insert().values(digest=digest, **asdict(session)))
        own, last_used = (
            sessions.c.user_id == session.user_id,
            func.coalesce(sessions.c.last_seen, sessions.c.created_at),
        )
        if delete_all_but_newest(connection, sessions, own, last_used, self._max_sessions_per_user):
            self._signals.notify(connection, REVOKED_ACCESS_CHANNEL, session.user_id)

    async def find_session(self, digest: str, now: float) -> tuple[BrowserSession, User] | None:
        """Return a session that has not expired, and its user, who is not disabled."""
        return await self._executor.fetch_one(
            _SELECT_BY_SESSION,
            lambda row: (_session_from_row(row), _user_from_row(row)),
            {"of": digest, "now": now},
        )

    async def extend_session(self, digest: str, expires_at: float) -> None:
        """Set a later expiry. A session that has ended meanwhile stays ended."""
        await self._executor.execute_by_key(
            update(sessions).where(sessions.c.digest == digest).values(expires_at=expires_at)
        )

    @transaction_by_key(None)
    def end_session(self, connection: Connection, digest: str) -> None:
        statement = delete(sessions).where(sessions.c.digest == digest).returning(sessions.c.user_id)
        if (user_id := connection.execute(statement).scalar()) is not None:
            self._signals.notify(connection, REVOKED_ACCESS_CHANNEL, user_id)

    async def list_sessions(self, user_id: str, now: float) -> Sequence[BrowserSession]:
        """Return the sessions that have not ended, most recently used first."""
        query = select(*_SESSION_COLUMNS).where(sessions.c.user_id == user_id, sessions.c.expires_at > now)
        found = await self._executor.fetch_all(query, _session_from_row)
        return sorted(found, key=lambda session: (-(session.last_seen or session.created_at), session.id))

    async def touch_session(self, digest: str, now: float, network: str) -> None:
        statement = update(sessions).where(sessions.c.digest == digest)
        await self._executor.execute_by_key(statement.values(last_seen=now, network=network))

    async def end_user_session(self, user_id: str, session_id: str) -> bool:
        """End a session; return False if the user has no such session."""
        is_session = (sessions.c.user_id == user_id) & (sessions.c.id == session_id)
        return await self._execute_and_revoke(delete(sessions).where(is_session), user_id)

    async def end_sessions(self, user_id: str) -> None:
        await self._execute_and_revoke(delete(sessions).where(sessions.c.user_id == user_id), user_id)

    # Tokens.

    async def add_token(self, digest: str, token: ApiToken) -> None:
        statement = api_tokens.insert().values(
            digest=digest,
            id=token.id,
            user_id=token.user_id,
            name=token.name,
            rights=sorted(right.value for right in token.scope.rights),
            servers=token.scope.servers,
            tools=token.scope.tools,
            agents=token.scope.agents,
            created_at=token.created_at,
            expires_at=token.expires_at,
            last_used_at=token.last_used_at,
        )
        await self._executor.execute(statement)

    async def find_token(self, digest: str, now: float) -> tuple[ApiToken, User] | None:
        """Return a token that has not expired, and its user, who is not disabled."""
        return await self._executor.fetch_one(
            _SELECT_BY_TOKEN,
            lambda row: (_token_from_row(row), _user_from_row(row)),
            {"of": digest, "now": now},
        )

    async def list_tokens(self, user_id: str) -> Sequence[ApiToken]:
        """Return the tokens of a user, newest first."""
        query = select(*_TOKEN_COLUMNS).where(api_tokens.c.user_id == user_id)
        found = await self._executor.fetch_all(query, _token_from_row)
        return sorted(found, key=lambda token: (-token.created_at, token.id))

    async def delete_token(self, user_id: str, token_id: str) -> bool:
        """Delete a token; return False if the user has no such token."""
        is_token = (api_tokens.c.user_id == user_id) & (api_tokens.c.id == token_id)
        return await self._execute_and_revoke(delete(api_tokens).where(is_token), user_id)

    async def touch_token(self, token_id: str, now: float) -> None:
        await self._executor.execute_by_key(
            update(api_tokens).where(api_tokens.c.id == token_id).values(last_used_at=now)
        )

    # Invites.

    @transaction
    def put_invite(self, connection: Connection, digest: str, invite: Invite) -> None:
        """Store an invite in place of the user's earlier one, and delete expired ones."""
        connection.execute(delete(invites).where(invites.c.expires_at < self._clock()))
        upsert(connection, invites, {"digest": digest, **asdict(invite)}, key=("user_id",))

    async def find_invite(self, digest: str, now: float) -> Invite | None:
        """Return a valid invite without using it."""
        query = _SELECT_INVITES.where(invites.c.digest == digest, invites.c.expires_at > now)
        return await self._executor.fetch_one(query, lambda row: Invite(*row))

    async def take_invite(self, digest: str, now: float) -> Invite | None:
        """Return a valid invite and delete it atomically."""
        statement = delete(invites).where(invites.c.digest == digest, invites.c.expires_at > now)
        row = await self._delete_returning(statement.returning(*_SELECT_INVITES.selected_columns))
        return None if row is None else Invite(*row)

    async def _delete_returning(self, statement: Any) -> Any:
        return await self._executor.write_or_default(
            lambda connection: connection.execute(statement).one_or_none(), None
        )

    # Failed sign-ins. Their keys contain what a user typed, which may be a password, so only a digest is
    # stored.

    async def count_attempts(self, key: str, since: float) -> AttemptCount:
        """Count the attempts within one hour from ``since``."""
        # The upper bound ignores attempts from a clock that was ahead; they would lock users out until that
        # time has come.
        in_period = attempts.c.at.between(since, since + _ATTEMPT_WINDOW_SECONDS)
        query = select(func.count(), func.max(attempts.c.at)).where(
            attempts.c.digest == compute_digest(key), in_period
        )
        count, latest = await self._executor.read(lambda connection: connection.execute(query).one())
        return AttemptCount(count, latest or 0.0)

    @transaction
    def add_attempt(self, connection: Connection, key: str, now: float) -> None:
        """Record an attempt. Deletes attempts more than a day away, and the oldest ones beyond a limit."""
        connection.execute(
            delete(attempts).where(~attempts.c.at.between(now - _DAY_SECONDS, now + _DAY_SECONDS))
        )
        statement = attempts.insert().values(digest=compute_digest(key), at=now).returning(attempts.c.id)
        newest = connection.execute(statement).scalar_one()
        # Ids grow with every row, so a range of ids limits the number of rows without counting them.
        connection.execute(delete(attempts).where(attempts.c.id <= newest - self._max_attempts))

    async def clear_attempts(self, key: str) -> None:
        await self._executor.execute_by_key(delete(attempts).where(attempts.c.digest == compute_digest(key)))

    # Sign-ins at the identity provider.

    @transaction
    def put_sign_in(self, connection: Connection, digest: str, body: bytes, now: float) -> None:
        """Store a started sign-in, encrypted.

        Deletes those started more than a day ago, and the oldest ones beyond a limit.
        """
        sealed = self._cipher.encrypt(body, secret_location(sign_ins.c.body, digest))
        connection.execute(delete(sign_ins).where(sign_ins.c.at < now - _DAY_SECONDS))
        upsert(connection, sign_ins, {"digest": digest, "body": sealed, "at": now})
        delete_all_but_newest(connection, sign_ins, true(), sign_ins.c.at, self._max_pending_sign_ins)

    async def take_sign_in(self, digest: str, newer_than: float) -> bytes | None:
        """Return a pending sign-in and delete it atomically."""
        statement = (
            delete(sign_ins).where(sign_ins.c.digest == digest).returning(sign_ins.c.body, sign_ins.c.at)
        )
        row = await self._delete_returning(statement)
        if row is None or row.at <= newer_than:
            return None
        return self._cipher.decrypt(row.body, secret_location(sign_ins.c.body, digest))


def _notice_text(notice: AccountNotice | None) -> str | None:
    return None if notice is None else orjson.dumps(asdict(notice)).decode()


def _name_taken_error(name: str) -> NameTaken:
    return NameTaken(f"a user named '{name}' already exists", hint="names must differ by more than case")


def _user_from_row(row: Any) -> User:
    return User(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        created_at=row.created_at,
        disabled=row.disabled,
        has_password=row.has_password,
        subject=row.subject,
        last_seen=row.last_seen,
        verified_email=row.verified_email,
        notice=_notice_from_text(row.notice),
        client_seen_at=row.client_seen_at,
        first_steps_hidden_at=row.first_steps_hidden_at,
    )


def _notice_from_text(stored: str | None) -> AccountNotice | None:
    if stored is None:
        return None
    fields = orjson.loads(stored)
    return AccountNotice(AccountNoticeKind(fields["kind"]), fields["at"], fields["by"])


def _session_from_row(row: Any) -> BrowserSession:
    return BrowserSession(
        id=row.session_id,
        user_id=row.session_user_id,
        created_at=row.session_created_at,
        expires_at=row.session_expires_at,
        last_seen=row.session_last_seen,
        network=row.session_network,
        browser=row.session_browser,
    )


def _token_from_row(row: Any) -> ApiToken:
    return ApiToken(
        id=row.token_id,
        user_id=row.token_user_id,
        name=row.token_name,
        scope=TokenScope(
            frozenset(map(Right, row.token_rights)), row.token_servers, row.token_tools, row.token_agents
        ),
        created_at=row.token_created_at,
        expires_at=row.token_expires_at,
        last_used_at=row.token_last_used_at,
    )
