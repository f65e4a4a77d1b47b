"""Questions to the person at the terminal."""

from __future__ import annotations

import sys

from toolyard.cli.output.console import style_text

__all__ = ["ask_yes_no", "ask_yes_no_async", "format_arguments_for_approval", "read_line_async"]

_YES_ANSWERS = {"y", "yes"}
_MAX_ARGUMENT_CHARACTERS = 100_000
"""Maximum length of arguments that a person can be expected to read at a terminal."""


def format_arguments_for_approval(arguments: object, *, indent: int | None = None) -> str | None:
    """Return all arguments of a call as text, or None if they cannot be shown and so cannot be approved."""
    from toolyard.agents.chat.argument_review import review_text  # only needed for prompts

    text = review_text(arguments, indent=indent)
    return text if text is not None and len(text) <= _MAX_ARGUMENT_CHARACTERS else None


def ask_yes_no(question: str) -> bool:
    """Ask a yes/no question; anything but yes is no. Requires an interactive terminal."""
    _print_question(question)
    return _is_yes(sys.stdin.readline())


async def ask_yes_no_async(question: str) -> bool:
    """Ask a yes/no question without blocking the event loop; Ctrl-C and timeouts end the wait."""
    _print_question(question)
    return _is_yes(await read_line_async())


async def read_line_async() -> str:
    """Read the next line of standard input without blocking the event loop; empty at the end of input."""
    import asyncio  # the loop that runs us

    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def on_readable() -> None:
        if not answer.done():
            answer.set_result(sys.stdin.readline())

    try:
        # A terminal delivers whole lines, so the read does not block.
        loop.add_reader(sys.stdin.fileno(), on_readable)
    except (NotImplementedError, PermissionError):
        # A platform without readers, or a regular file, which never blocks.
        return await asyncio.to_thread(sys.stdin.readline)
    try:
        return await answer
    finally:
        loop.remove_reader(sys.stdin.fileno())


def _print_question(question: str) -> None:
    print(f"{style_text(question, 'bold', sys.stderr)} [y/N] ", end="", file=sys.stderr, flush=True)


def _is_yes(line: str) -> bool:
    if not line.endswith("\n"):
        print(file=sys.stderr)
    return line.strip().casefold() in _YES_ANSWERS
