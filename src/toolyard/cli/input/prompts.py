"""Asking the person at the terminal."""

from __future__ import annotations

import sys

from toolyard.cli.output.terminal import style_text

__all__ = ["ask_yes_no", "ask_yes_no_async", "format_arguments_for_approval", "read_line_async"]

_YES_ANSWERS = {"y", "yes"}
MAX_ARGUMENT_CHARACTERS = 100_000
"""Length of arguments up to which a person can be expected to read them at a terminal."""


def format_arguments_for_approval(
    arguments: object, *, indent: int | None = None, max_characters: int = MAX_ARGUMENT_CHARACTERS
) -> str | None:
    """Return all arguments of a call as text; None where they cannot be shown, and so not be approved."""
    from toolyard.agents.chat.argument_review import review_text  # only where somebody is asked

    text = review_text(arguments, indent=indent)
    return text if text is not None and len(text) <= max_characters else None


def ask_yes_no(question: str) -> bool:
    """Yes or no; anything but yes is no. Somebody must be there."""
    _print_question(question)
    return _is_yes(sys.stdin.readline())


async def ask_yes_no_async(question: str) -> bool:
    """The same inside the event loop, which goes on; Ctrl-C and timeouts end the wait."""
    _print_question(question)
    return _is_yes(await read_line_async())


async def read_line_async() -> str:
    """The next line of standard input, while the event loop goes on; empty at its end."""
    import asyncio  # the loop that runs us

    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def on_readable() -> None:
        if not answer.done():
            answer.set_result(sys.stdin.readline())

    try:
        # A terminal hands over whole lines, so the read does not wait.
        loop.add_reader(sys.stdin.fileno(), on_readable)
    except (NotImplementedError, PermissionError):
        # A system without it, or a file, which never makes anybody wait.
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
