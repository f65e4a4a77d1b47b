"""Storage protocol of accounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from toolyard.types.account import ApiToken, BrowserSession, Invite, Notice, Role, User

__all__ = ["AccountStorage", "AttemptCount"]


@dataclass(frozen=True, slots=True)
class AttemptCount:
    """Number of attempts in a period, and the time of the last one; 0 if there is none."""

    count: int
    latest: float


class AccountStorage(Protocol):
    """Storage of users, sessions, tokens, invites and failed sign-ins, shared by all replicas.

    ``digest`` is always the hash of a secret; secrets themselves are never stored. Times are Unix times in
    seconds.
    """

    # Users.

    async def get_user(self, user_id: str) -> User | None: ...

    async def find_user_by_name(self, name: str) -> User | None:
        """Return the user with this name, ignoring case."""
        ...

    async def find_user_by_subject(self, subject: str) -> User | None: ...

    async def list_users(self) -> Sequence[User]:
        """Return all users, sorted by name."""
        ...

    async def add_user(
        self, name: str, role: Role, *, user_id: str | None = None, subject: str | None = None
    ) -> User:
        """Add a user; ``user_id`` None generates an id. Raises NameTaken if the name or subject is in use."""
        ...

    async def set_role(self, user_id: str, role: Role) -> None: ...

    async def set_verified_email(self, user_id: str, email: str | None) -> None:
        """Store the address in lower case, and remove it from any other account."""
        ...

    async def rename_user(self, user_id: str, name: str) -> None:
        """Rename the user, and void their invite. Raises NameTaken."""
        ...

    async def set_disabled(self, user_id: str, disabled: bool) -> None:
        """Disable or enable the user. Disabling also ends their sessions and voids their invite."""
        ...

    async def delete_user(self, user_id: str) -> None:
        """Delete the user with their sessions, tokens, and instances including sign-ins."""
        ...

    async def touch_user(self, user_id: str, now: float) -> None: ...

    async def get_password_hash(self, user_id: str) -> str | None: ...

    async def set_password_hash(self, user_id: str, password_hash: str | None) -> None:
        """Store the hash, and void the user's invite."""
        ...

    async def reset_password(
        self, user_id: str, password_hash: str, notice: Notice | None, *, revoke_tokens: bool
    ) -> None:
        """Set the password for the holder of an invite link, who may not be the account's owner.

        Atomically also ends the user's sessions, deletes the credentials stored for servers, stores the
        notice and, with ``revoke_tokens``, deletes the API tokens.
        """
        ...

    async def set_notice(self, user_id: str, notice: Notice | None) -> None: ...

    # Browser sessions.

    async def add_session(self, digest: str, session: BrowserSession) -> None: ...

    async def find_session(self, digest: str, now: float) -> tuple[BrowserSession, User] | None:
        """Return a session that has not expired, and its user, who is not disabled."""
        ...

    async def extend_session(self, digest: str, expires_at: float) -> None:
        """Set a later expiry. A session that has ended meanwhile stays ended."""
        ...

    async def end_session(self, digest: str) -> None: ...

    async def list_sessions(self, user_id: str, now: float) -> Sequence[BrowserSession]:
        """Return the sessions that have not ended, most recently used first."""
        ...

    async def touch_session(self, digest: str, now: float, network: str) -> None: ...

    async def end_user_session(self, user_id: str, session_id: str) -> bool:
        """End a session; return False if the user has no such session."""
        ...

    async def end_sessions(self, user_id: str) -> None: ...

    # Tokens.

    async def add_token(self, digest: str, token: ApiToken) -> None: ...

    async def find_token(self, digest: str, now: float) -> tuple[ApiToken, User] | None:
        """Return a token that has not expired, and its user, who is not disabled."""
        ...

    async def list_tokens(self, user_id: str) -> Sequence[ApiToken]: ...

    async def delete_token(self, user_id: str, token_id: str) -> bool:
        """Delete a token; return False if the user has no such token."""
        ...

    async def touch_token(self, token_id: str, now: float) -> None: ...

    # Invites.

    async def put_invite(self, digest: str, invite: Invite) -> None:
        """Store an invite, replacing an earlier one of the same user."""
        ...

    async def find_invite(self, digest: str, now: float) -> Invite | None:
        """Return a valid invite without using it."""
        ...

    async def take_invite(self, digest: str, now: float) -> Invite | None:
        """Return a valid invite and delete it atomically."""
        ...

    # Failed sign-ins.

    async def count_attempts(self, key: str, since: float) -> AttemptCount:
        """Count the attempts within one hour from ``since``."""
        ...

    async def add_attempt(self, key: str, now: float) -> None:
        """Record an attempt. Deletes attempts more than a day away, and the oldest ones beyond a limit."""
        ...

    async def clear_attempts(self, key: str) -> None: ...

    # Pending sign-ins at the identity provider.

    async def put_sign_in(self, digest: str, body: bytes, now: float) -> None:
        """Store a pending sign-in, encrypted at rest."""
        ...

    async def take_sign_in(self, digest: str, newer_than: float) -> bytes | None:
        """Return a pending sign-in and delete it atomically."""
        ...
