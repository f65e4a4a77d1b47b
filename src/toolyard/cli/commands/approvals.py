"""``toolyard approvals``: calls that need approval and standing approvals, in the database itself."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolyard.cli.database import record_audit_entry, require_user, run_with_database
from toolyard.cli.invocation import Command, Options, Usage, print_outcome, shared_params
from toolyard.cli.output.console import Column, print_json, show_note, show_table
from toolyard.types.account import LOCAL_PRINCIPAL

if TYPE_CHECKING:
    from toolyard.store import Database
    from toolyard.types.approval import Approval, Grant

__all__ = ["command"]

T = TypeVar("T")

_COLUMNS = (
    Column("tool", style="cyan", never_truncate=True),
    Column("covers"),
    Column("until"),
    Column("id", style="dim", never_truncate=True),
)
_user_option = click.option("--user", help="The person; by default the local user.")


@click.group("approvals")
def command() -> None:
    """List and revoke approvals.

    A call that needs approval is answered on the Approvals page, or in the chat that makes it.
    """


command.params += shared_params()


@command.command("list", cls=Command, short_help="List calls that need approval, and standing approvals.")
@_user_option
@click.pass_obj
def list_approvals(options: Options, user: str | None) -> None:
    """List calls that need approval, and standing approvals with their end."""

    async def read(database: Database, owner: str) -> tuple[list[Approval], list[Grant]]:
        store = database.approvals
        return list(await store.list_pending(owner)), list(await store.list_grants(owner, time.time()))

    pending, grants = _run_with_owner(options, user, read)
    if options.json:
        print_json(
            {
                "pending": [{"id": each.id, "tool": each.tool, "reason": each.reason} for each in pending],
                "standing": [_grant_json(each) for each in grants],
            }
        )
        return
    if pending:
        show_note(f"calls that need approval: {len(pending)}", "answer them on the Approvals page")
    if not grants:
        show_note("no standing approvals")
    show_table(_COLUMNS, ((each.name, _describe_reach(each), _format_end(each), each.id) for each in grants))


@command.command("revoke", cls=Command, short_help="Revoke a standing approval.")
@click.argument("id")
@_user_option
@click.pass_obj
def revoke_approval(options: Options, id: str, user: str | None) -> None:
    """Revoke a standing approval: such calls need approval again."""

    async def revoke(database: Database, owner: str) -> None:
        if not await database.approvals.revoke(owner, id):
            raise Usage(
                f"unknown standing approval '{id}'", hint="`toolyard approvals list` shows all of them"
            )
        await record_audit_entry(database, "grant.revoke", id)

    _run_with_owner(options, user, revoke)
    print_outcome(options, f"{id} was revoked", id=id, revoked=True)


def _run_with_owner(
    options: Options, name: str | None, operation: Callable[[Database, str], Awaitable[T]]
) -> T:
    """Run an operation on the database, for the person with this name."""
    from toolyard.accounts import AccountService  # slow to load, as the whole store is

    async def run_operation(database: Database) -> T:
        owner = LOCAL_PRINCIPAL.id
        if name is not None:
            people = AccountService(database.accounts, options.load_settings())
            owner = (await require_user(people, name)).id
        return await operation(database, owner)

    return run_with_database(options, run_operation)


def _describe_reach(grant: Grant) -> str:
    arguments = "some arguments" if grant.predicate else "any arguments"
    return f"{arguments}, {'one chat' if grant.chat_id else 'everywhere'}"


def _format_end(grant: Grant) -> str:
    return time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(grant.expires_at))


def _grant_json(grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.id,
        "tool": grant.tool,
        "name": grant.name,
        "predicate": grant.predicate,
        "chat_id": grant.chat_id,
        "uses": grant.uses,
        "created_at": grant.created_at,
        "expires_at": grant.expires_at,
    }
