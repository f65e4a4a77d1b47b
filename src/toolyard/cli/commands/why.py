"""``toolyard why``: explain whether a tool is visible and callable."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from toolyard.cli.input.completion import agent_option, bundles_option, complete_tools
from toolyard.cli.invocation import Command, Options, open_yard, run_async
from toolyard.cli.output.console import one_line, print_json, style_text
from toolyard.cli.output.notices import add_refusal_hint, clean_server_text
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.errors import ToolRefused
from toolyard.types.call import Decision, RuleOutcome, Verdict

if TYPE_CHECKING:
    from toolyard.library import Toolyard

__all__ = ["command"]

_VERDICT_COLOURS = {Verdict.ALLOW: "green", Verdict.ASK: "yellow"}
_OUTCOME_COLOURS = {RuleOutcome.HIDE: "red", RuleOutcome.REFUSE: "red", RuleOutcome.ASK: "yellow"}


@click.command("why", cls=Command)
@click.argument("name", shell_complete=complete_tools)
@agent_option("Explain for this agent.")
@bundles_option
@click.pass_obj
def command(options: Options, name: str, agent: str | None, bundles: tuple[str, ...]) -> None:
    """Explain whether the tool NAME is visible and callable, with the rules that decide.

    NAME is the name that `toolyard tools` shows, or server/tool. An arrow marks the deciding rule. Exits with
    0 for any decision, and with 4 for an unknown name.
    """
    run_async(_explain_tool(options, name, agent, bundles))


async def _explain_tool(options: Options, name: str, agent: str | None, bundles: tuple[str, ...]) -> None:
    from toolyard.core.agents import add_stored_agents  # not for the help

    async with open_yard(options) as yard, ProgressIndicator("looking", quiet=options.json):
        yard.agents = await add_stored_agents(yard.agents, agent, yard.settings, options.resolved_data_dir)
        decision = await _find_decision(yard, name, agent, bundles)
    if options.json:
        print_json(decision.as_json())
    else:
        _show_decision(decision)


async def _find_decision(yard: Toolyard, name: str, agent: str | None, bundles: tuple[str, ...]) -> Decision:
    with suppress(ToolRefused):
        return yard.why(name, agent=agent, bundles=bundles)
    owner, slash, _ = name.partition("/")
    if slash and owner in yard.configuration.servers:
        await yard.tools(server=owner)
        if (failure := yard.known().failures.get(owner)) is not None:
            failure.cause = clean_server_text(failure.cause, yard.configuration.servers[owner])
            raise failure
    else:
        with suppress(ToolRefused):
            await yard.find(name)
    try:
        return yard.why(name, agent=agent, bundles=bundles)
    except ToolRefused as error:
        hint = "`toolyard tools` lists all tools"
        raise add_refusal_hint(error, name, yard.configuration, hint) from None


def _show_decision(decision: Decision) -> None:
    verdict = style_text(decision.verdict.value, _VERDICT_COLOURS.get(decision.verdict, "red"), sys.stdout)
    print(f"{one_line(decision.name)} ({one_line(decision.tool)}): {verdict}")
    width = max((len(link.rule) for link in decision.chain), default=0)
    for link in decision.chain:
        mark = "->" if link is decision.decisive else "  "
        colour = _OUTCOME_COLOURS.get(link.outcome, "dim")
        outcome = style_text(f"{link.outcome.value:<6}", colour, sys.stdout)
        print(f"{mark} {link.rule:<{width}}  {outcome}  {one_line(link.reason)}")
