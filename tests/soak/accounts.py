"""Accounts for a soak, each with a token for programs and a browser that is signed in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from toolyard.accounts import AccountService
from toolyard.config.settings.table import Settings
from toolyard.store import Database
from toolyard.types.account import Right, Role, TokenScope
from toolyard.web.access.cookies import cookie_name


@dataclass(frozen=True)
class SoakAccount:
    """Somebody with an account. The first one is an admin."""

    number: int
    token: str
    cookie: str
    admin: bool = False

    @property
    def name(self) -> str:
        return f"person-{self.number}"


async def create_accounts(folder: Path, url: str | None, key: str | None, count: int) -> list[SoakAccount]:
    """New accounts in a database that nobody else uses yet."""
    database = await Database.open(folder, url=url, secret_key=key)
    try:
        people = AccountService(database.accounts, Settings())
        return [await _make(database, people, number) for number in range(count)]
    finally:
        await database.close()


async def _make(database: Database, people: AccountService, number: int) -> SoakAccount:
    admin = number == 0
    user = await database.accounts.add_user(f"person-{number}", Role.ADMIN if admin else Role.USER)
    # Somebody without a password has no account that counts.
    await database.accounts.set_password_hash(user.id, "none that fits")
    rights = frozenset(each for each in Right if admin or each is not Right.ADMIN)
    _, token = await people.create_token(user, "soak", TokenScope(rights), None)
    cookie = f"{cookie_name(Settings())}={await people.begin_session(user)}"
    return SoakAccount(number, token, cookie, admin)
