"""What this room needs of a store."""

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
    """Users, sessions, tokens, invites and failed sign-ins; shared by every replica.

    ``digest`` is always a hash of a secret: the secret itself never gets here.
    """

    # Users.

    async def user(self, user_id: str) -> User | None: ...

    async def find_user_by_name(self, name: str) -> User | None:
        """By name, without regard to case."""
        ...

    async def find_user_by_subject(self, subject: str) -> User | None: ...

    async def users(self) -> Sequence[User]:
        """All, by name."""
        ...

    async def add_user(
        self, name: str, role: Role, *, user_id: str | None = None, subject: str | None = None
    ) -> User:
        """Raises NameTaken where there is one of that name or subject. ``user_id`` None makes a new one."""
        ...

    async def set_role(self, user_id: str, role: Role) -> None: ...

    async def set_verified_email(self, user_id: str, email: str | None) -> None:
        """Store the address, in lower case, and take it from any other account."""
        ...

    async def rename_user(self, user_id: str, name: str) -> None:
        """Also voids their invite. Raises NameTaken."""
        ...

    async def set_disabled(self, user_id: str, disabled: bool) -> None:
        """If disabled, also ends their sessions and voids their invite."""
        ...

    async def delete_user(self, user_id: str) -> None:
        """With sessions, tokens, instances and their sign-ins."""
        ...

    async def touch_user(self, user_id: str, now: float) -> None: ...

    async def get_password_hash(self, user_id: str) -> str | None: ...

    async def set_password_hash(self, user_id: str, password_hash: str | None) -> None:
        """Also voids their invite."""
        ...

    async def reset_password(
        self, user_id: str, password_hash: str, notice: Notice | None, *, revoke_tokens: bool
    ) -> None:
        """Set the password for whoever holds a link, who may not be the person.

        In one step, also ends their sessions, removes the credentials that they stored for servers, stores
        the notice and, if asked to, revokes their tokens.
        """
        ...

    async def set_notice(self, user_id: str, notice: Notice | None) -> None: ...

    # Browsers.

    async def add_session(self, digest: str, session: BrowserSession) -> None: ...

    async def find_session(self, digest: str, now: float) -> tuple[BrowserSession, User] | None:
        """Of a user who is not disabled, and not past its end."""
        ...

    async def extend_session(self, digest: str, expires_at: float) -> None:
        """Let it end later. One that has ended meanwhile stays ended."""
        ...

    async def end_session(self, digest: str) -> None: ...

    async def list_sessions(self, user_id: str, now: float) -> Sequence[BrowserSession]:
        """Those that have not ended, the most recently used first."""
        ...

    async def touch_session(self, digest: str, now: float, network: str) -> None: ...

    async def end_user_session(self, user_id: str, session_id: str) -> bool:
        """False: this user has no such session."""
        ...

    async def end_sessions(self, user_id: str) -> None: ...

    # Tokens.

    async def add_token(self, digest: str, token: ApiToken) -> None: ...

    async def find_token(self, digest: str, now: float) -> tuple[ApiToken, User] | None:
        """Of a user who is not disabled, and not past its end."""
        ...

    async def tokens(self, user_id: str) -> Sequence[ApiToken]: ...

    async def delete_token(self, user_id: str, token_id: str) -> bool:
        """False: this user has no such token."""
        ...

    async def touch_token(self, token_id: str, now: float) -> None: ...

    # Invites.

    async def put_invite(self, digest: str, invite: Invite) -> None:
        """Store it; an earlier one for the same user is void."""
        ...

    async def find_invite(self, digest: str, now: float) -> Invite | None:
        """Look without using it up."""
        ...

    async def take_invite(self, digest: str, now: float) -> Invite | None:
        """Hand it out and delete it in one step."""
        ...

    # Failed sign-ins.

    async def count_attempts(self, key: str, since: float) -> AttemptCount:
        """Those of the hour that begins then."""
        ...

    async def add_attempt(self, key: str, now: float) -> None:
        """Also forgets attempts that are more than a day away, and the oldest where there are too many."""
        ...

    async def clear_attempts(self, key: str) -> None: ...

    # A sign-in at the identity provider that was begun.

    async def put_sign_in(self, digest: str, body: bytes, now: float) -> None:
        """Encrypted at rest."""
        ...

    async def take_sign_in(self, digest: str, newer_than: float) -> bytes | None:
        """Hand it out and delete it in one step."""
        ...
