"""``toolyard users``: who has an account, on the database itself, whether a server runs or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.audit_entries import ACTOR, record
from toolyard.cli.error_exit import Usage
from toolyard.cli.input.options import Command, Options, shared_params
from toolyard.cli.input.prompts import ask
from toolyard.cli.output.messages import note
from toolyard.cli.output.safe_text import ago, print_json
from toolyard.cli.output.tables import Cell, Column, show_table
from toolyard.cli.output.terminal import person_is_there
from toolyard.cli.runner import run_async

if TYPE_CHECKING:
    from toolyard.accounts import People
    from toolyard.config.settings.table import Settings
    from toolyard.store import Database
    from toolyard.types.account import User

__all__ = ["command"]

T = TypeVar("T")

_COLUMNS = (
    Column("name", style="cyan", whole=True),
    Column("role"),
    Column("state"),
    Column("last seen"),
    Column("id", style="dim", whole=True),
)


@click.group("users", short_help=COMMANDS["users"])
def command() -> None:
    """Manage the people who have accounts here.

    In the mode password, accounts are made here or on the page People; a link lets each person set their own
    password. In the modes proxy and oidc accounts come by themselves, and the setting admins names admins.
    """


command.params += shared_params()


@command.command("list", cls=Command, short_help="Show who has an account.")
@click.pass_obj
def list_users(options: Options) -> None:
    """Show who has an account, with role and state."""
    users = _with(options, lambda hall: hall.users())
    if options.json:
        print_json({"items": [_as_json(user) for user in users]})
        return
    if not users:
        note("nobody has an account yet", "toolyard users add NAME --admin")
    show_table(_COLUMNS, (_row(user) for user in users))


@command.command("add", cls=Command, short_help="Make an account, and a link to set its password.")
@click.argument("name")
@click.option("--admin", is_flag=True, help="They may change the registry and see people and the audit log.")
@click.pass_obj
def add(options: Options, name: str, admin: bool) -> None:
    """Make an account and print a link, with which its owner sets the password. It works once, for a day."""

    async def work(hall: _Hall) -> str:
        from toolyard.accounts.errors import NameTaken
        from toolyard.types.account import Role  # the help needs none of it

        if await hall.people.find(name) is not None:
            raise NameTaken(f"there is a user '{name}' already", hint=f"toolyard users invite '{name}'")
        text = await hall.people.invite(name, Role.ADMIN if admin else Role.USER)
        return await hall.link(text, "user.add", await hall.known(name))

    _show_link(options, name, _with(options, work))


@command.command("invite", cls=Command, short_help="Print a new link for somebody who has an account.")
@click.argument("name")
@click.pass_obj
def invite(options: Options, name: str) -> None:
    """Print a link with which somebody sets a new password. It works once, for a day; earlier ones do not.

    Their old password and their sessions work until the link is used. Then every browser is signed out, and
    the sign-ins and keys that they stored for servers are removed, since whoever used the link may not be
    them. Their pages tell them of the link, and of its use. API tokens stay unless they revoke them.
    """

    async def work(hall: _Hall) -> str:
        user = await hall.known(name)
        return await hall.link(await hall.people.invite_user(user, by=ACTOR), "user.invite", user)

    _show_link(options, name, _with(options, work))


@command.command("disable", cls=Command, short_help="Keep an account, but let nobody in with it.")
@click.argument("name")
@click.option("--undo", is_flag=True, help="Let them in again.")
@click.pass_obj
def disable(options: Options, name: str, undo: bool) -> None:
    """Keep an account, but let nobody in with it: sessions end at once, tokens stop working, and sign-ins to
    servers are given back."""

    async def work(hall: _Hall) -> str:
        user = await hall.known(name)
        await hall.database.people.disable_user(user.id, not undo)
        if not undo:
            from toolyard.cli.revoke_sign_ins import sign_out_user  # the help needs none of it

            await sign_out_user(options, hall.settings, hall.database, user)
        await hall.wrote("user.enable" if undo else "user.disable", user)
        return user.name

    done = _with(options, work)
    _say(options, f"{done} is {'enabled' if undo else 'disabled'}", name=done, disabled=not undo)


@command.command("delete", cls=Command, short_help="Delete an account with all that belongs to it.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.pass_obj
def delete(options: Options, name: str, yes: bool) -> int:
    """Delete an account with its sessions, tokens, instances and their sign-ins. The audit log stays."""
    if not yes and (options.json or not person_is_there()):
        raise Usage("nobody can be asked, so nothing was deleted", hint="--yes deletes without asking")
    if not yes and not ask(f"Delete '{name}' with all their instances and tokens?"):
        note("nothing was deleted")
        return 1

    async def work(hall: _Hall) -> str:
        user = await hall.known(name)
        from toolyard.cli.revoke_sign_ins import delete_user  # the help needs none of it

        await delete_user(options, hall.settings, hall.database, user)
        await hall.wrote("user.delete", user)
        return user.name

    done = _with(options, work)
    _say(options, f"{done} is deleted", name=done, deleted=True)
    return 0


class _Hall:
    """The database, open, and who is in it."""

    def __init__(self, database: Database, people: People, settings: Settings) -> None:
        self.database = database
        self.people = people
        self.settings = settings

    async def users(self) -> list[User]:
        from dataclasses import replace  # the help needs none of it

        from toolyard.accounts.account_status import effective_role

        found = await self.database.people.users()
        return [replace(user, role=effective_role(user, self.settings)) for user in found]

    async def known(self, name: str) -> User:
        from toolyard.accounts.errors import NoSuchUser  # the help needs none of it

        user = await self.people.find(name)
        if user is None:
            raise NoSuchUser(f"there is no user '{name}'", hint="toolyard users list shows who there is")
        return user

    async def link(self, text: str, action: str, user: User) -> str:
        from toolyard.accounts.startup import address_of, invite_link  # the help needs none of it

        await self.wrote(action, user)
        return invite_link(address_of(self.settings), text)

    async def wrote(self, action: str, user: User) -> None:
        await record(self.database, action, user.id, name=user.name)


def _with(options: Options, work: Callable[[_Hall], Awaitable[T]]) -> T:
    """Do it with the database open."""
    from toolyard.accounts import People
    from toolyard.config import load_settings  # slow to load, as the whole store is
    from toolyard.store import Database

    async def run() -> T:
        settings = load_settings(options.folder)
        database = await Database.of(settings, options.folder)
        try:
            return await work(_Hall(database, People(database.people, settings), settings))
        finally:
            await database.close()

    return run_async(run())


def _show_link(options: Options, name: str, link: str) -> None:
    if options.json:
        print_json({"name": name, "link": link})
        return
    print(link)
    note(f"whoever opens this link sets the password of '{name}'; it works once, for a day")


def _say(options: Options, text: str, **more: object) -> None:
    if options.json:
        print_json(more)
    else:
        print(text)


def _row(user: User) -> tuple[str | Cell, ...]:
    import time  # the help needs none of it

    seen = "never" if user.last_seen is None else ago(max(0.0, time.time() - user.last_seen))
    return (
        user.name,
        Cell(user.role.value, "bold" if user.role.value == "admin" else ""),
        Cell("disabled", "red") if user.disabled else _proof(user),
        seen,
        user.id,
    )


def _proof(user: User) -> str:
    if user.subject is not None:
        return f"identity provider: {user.subject.partition('|')[2]}"
    return "password" if user.has_password else "no password"


def _as_json(user: User) -> dict[str, object]:
    return {
        "id": user.id,
        "name": user.name,
        "role": user.role.value,
        "disabled": user.disabled,
        "has_password": user.has_password,
        "subject": user.subject,
        "created_at": user.created_at,
        "last_seen": user.last_seen,
    }
