"""``toolyard users``: manage accounts in the database, whether or not a server is running.

Deleting an account or signing it out also revokes its tokens at the providers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolyard.cli.database import (
    AUDIT_ACTOR_NAME,
    open_sign_out_service,
    record_audit_entry,
    require_user,
    run_with_database,
)
from toolyard.cli.input.prompts import ask_yes_no
from toolyard.cli.invocation import Command, Options, Usage, print_outcome, shared_params
from toolyard.cli.output import console
from toolyard.errors import ConfigError
from toolyard.types.account import Role

if TYPE_CHECKING:
    from toolyard.registry import Registry
    from toolyard.store import Database
    from toolyard.types.account import User
    from toolyard.types.server import Server

__all__ = ["command"]


T = TypeVar("T")

_COLUMNS = (
    console.Column("name", style="cyan", never_truncate=True),
    console.Column("role"),
    console.Column("state"),
    console.Column("last seen"),
    console.Column("id", style="dim", never_truncate=True),
)


@click.group("users")
def command() -> None:
    """Manage accounts.

    In password mode, accounts are created here or on the People page; an invite link lets each person set
    their own password. In the modes proxy and oidc accounts are created at the first sign-in, and the setting
    admins names the admins.
    """


command.params += shared_params()


@command.command("list", cls=Command, short_help="List accounts.")
@click.pass_obj
def list_users(options: Options) -> None:
    """List accounts with role and state."""
    users = _run_with_accounts(options, _AccountAdmin.list_users)
    if options.json:
        console.print_json({"items": [_user_json(user) for user in users]})
        return
    if not users:
        console.show_note("no accounts yet", "create one with `toolyard users add NAME --admin`")
    console.show_table(_COLUMNS, (_make_row(user) for user in users))


@command.command("add", cls=Command, short_help="Create an account and a link to set its password.")
@click.argument("name")
@click.option(
    "--admin",
    is_flag=True,
    help="Make the account an admin, who manages the registry and accounts and sees the audit log.",
)
@click.pass_obj
def add_account(options: Options, name: str, admin: bool) -> None:
    """Create an account and print an invite link for setting the password. It works once, for a day."""

    async def create_account(accounts: _AccountAdmin) -> str:
        from toolyard.accounts.errors import NameTaken  # the help needs none of it

        if await accounts.people.find_user(name) is not None:
            raise NameTaken(
                f"user '{name}' already exists", hint=f"for a new link, run `toolyard users invite '{name}'`"
            )
        text = await accounts.people.invite(name, Role.ADMIN if admin else Role.USER)
        return await accounts.create_invite_link(text, "user.add", await require_user(accounts.people, name))

    _show_link(options, name, _run_with_accounts(options, create_account))


@command.command("invite", cls=Command, short_help="Print a new link for an existing account.")
@click.argument("name")
@click.pass_obj
def print_password_link(options: Options, name: str) -> None:
    """Print a link with which a person sets a new password. It works once, for a day, and replaces earlier
    links.

    The old password and sessions work until the link is used. Then every browser is signed out, and the
    sign-ins and keys that the person stored for servers are removed, since somebody else may have used the
    link. Their API tokens are revoked too, unless they choose in the form to keep them. The person's pages
    report the link and its use.
    """

    async def create_link(accounts: _AccountAdmin) -> str:
        user = await require_user(accounts.people, name)
        return await accounts.create_invite_link(
            await accounts.people.invite_user(user, by=AUDIT_ACTOR_NAME), "user.invite", user
        )

    _show_link(options, name, _run_with_accounts(options, create_link))


@command.command("disable", cls=Command, short_help="Disable an account.")
@click.argument("name")
@click.option("--undo", is_flag=True, help="Enable the account again.")
@click.pass_obj
def disable_account(options: Options, name: str, undo: bool) -> None:
    """Disable an account: sessions end at once, tokens stop working, and sign-ins to servers are revoked."""

    async def set_disabled(accounts: _AccountAdmin) -> str:
        user = await require_user(accounts.people, name)
        await accounts.database.accounts.set_disabled(user.id, not undo)
        if not undo:
            await accounts.sign_out(user)
        await accounts.record_action("user.enable" if undo else "user.disable", user)
        return user.name

    done = _run_with_accounts(options, set_disabled)
    print_outcome(options, f"{done} is {'enabled' if undo else 'disabled'}", name=done, disabled=not undo)


@command.command("delete", cls=Command, short_help="Delete an account with all its data.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.pass_obj
def delete_account(options: Options, name: str, yes: bool) -> int:
    """Delete an account with its sessions, tokens, instances and their sign-ins. The audit log stays."""
    if not yes and (options.json or not console.is_interactive()):
        raise Usage(
            "cannot ask for confirmation here, so nothing was deleted", hint="--yes deletes without asking"
        )
    if not yes and not ask_yes_no(f"Delete '{name}' with all their instances and tokens?"):
        console.show_note("nothing was deleted")
        return 1

    async def remove_account(accounts: _AccountAdmin) -> str:
        user = await require_user(accounts.people, name)
        await accounts.delete(user)
        await accounts.record_action("user.delete", user)
        return user.name

    done = _run_with_accounts(options, remove_account)
    print_outcome(options, f"{done} was deleted", name=done, deleted=True)
    return 0


class _AccountAdmin:
    """The open database and its accounts."""

    def __init__(self, options: Options, database: Database) -> None:
        from toolyard.accounts import AccountService  # slow to load, as the whole store is

        self.options = options
        self.database = database
        self.settings = options.load_settings()
        self.people = AccountService(database.accounts, self.settings)

    async def list_users(self) -> list[User]:
        from toolyard.accounts.effective_role import effective_role  # the help needs none of it

        found = await self.database.accounts.list_users()
        return [replace(user, role=effective_role(user, self.settings)) for user in found]

    async def create_invite_link(self, text: str, action: str, user: User) -> str:
        from toolyard.accounts.startup import build_invite_link, public_base_url  # the help needs none of it

        await self.record_action(action, user)
        return build_invite_link(public_base_url(self.settings), text)

    async def record_action(self, action: str, user: User) -> None:
        await record_audit_entry(self.database, action, user.id, name=user.name)

    async def sign_out(self, user: User) -> None:
        """Sign an account out of every server, and revoke its tokens."""
        async with open_sign_out_service(self.options, self.database.auth) as sign_outs:
            await sign_outs.sign_out_user(
                self._open_registry(), user.principal, self._load_configured_servers()
            )

    async def delete(self, user: User) -> None:
        """Delete an account, and revoke its tokens."""
        async with open_sign_out_service(self.options, self.database.auth) as sign_outs:
            held = await sign_outs.collect_user_grants(
                self._open_registry(), user.principal, self._load_configured_servers()
            )
            await self.database.accounts.delete_user(user.id)
            sign_outs.revoke_in_background(held)

    def _open_registry(self) -> Registry:
        from toolyard.registry import Registry  # the help needs none of it

        return Registry(self.database.registry, self.settings)

    def _load_configured_servers(self) -> Sequence[Server]:
        """Return the configured servers; errors in the files do not prevent deleting an account."""
        try:
            return tuple(self.options.load_config().servers.values())
        except ConfigError:
            return ()


def _run_with_accounts(options: Options, operation: Callable[[_AccountAdmin], Coroutine[Any, Any, T]]) -> T:
    return run_with_database(options, lambda database: operation(_AccountAdmin(options, database)))


def _show_link(options: Options, name: str, link: str) -> None:
    if options.json:
        console.print_json({"name": name, "link": link})
        return
    print(link)
    console.show_note(f"anyone with this link can set the password of '{name}'; it works once, for a day")


def _make_row(user: User) -> tuple[str | console.StyledCell, ...]:
    seen = "never" if user.last_seen is None else console.format_age(max(0.0, time.time() - user.last_seen))
    return (
        user.name,
        console.StyledCell(user.role.value, "bold" if user.role.value == "admin" else ""),
        console.StyledCell("disabled", "red") if user.disabled else _describe_credential(user),
        seen,
        user.id,
    )


def _describe_credential(user: User) -> str:
    if user.subject is not None:
        return f"identity provider: {user.subject.partition('|')[2]}"
    return "password" if user.has_password else "no password"


def _user_json(user: User) -> dict[str, object]:
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
