"""Turns of chats: what the model is told to do, and what the person does meanwhile."""

from __future__ import annotations

import random
from dataclasses import dataclass

_WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "then", "sleeps"]


@dataclass(frozen=True)
class Turn:
    """A script for the model (see tests/servers/openai_server.py), and how it has to end."""

    script: str
    expected: str = ""
    """What is in the last answer."""
    ends: tuple[str, ...] = ("done",)
    stops: bool = False
    """The person stops it as soon as something happens."""
    breaks: bool = False
    """The person's stream breaks in the middle."""
    approves: bool | None = None
    """What the person says when asked."""


def some_turn(draw: random.Random, name: str, instance: str | None) -> Turn:
    """A turn of somebody who has this instance, or none."""
    mark = f"{name}-{draw.randrange(10**9)}"
    words = " ".join(draw.choices(_WORDS, k=draw.randint(5, 40)))
    arguments = f'{{"text": "{mark}"}}'
    look = f"call desk_look {arguments}\nthen\nresults?"
    put = f"call desk_put {arguments}\nthen\n"
    turns = [
        (Turn(f"pace 0.01\nsay {words} {mark}", mark), 3),
        (Turn(f"think {words}\nsay {mark}", mark), 1),
        (Turn(look, f"look: {mark}"), 3),
        (Turn(f"pace 0.02\nsay {words}\n{look}", f"look: {mark}", breaks=True), 2),
        (Turn(f'many 3 desk_look {{"text": "$n {mark}"}}\nthen\nresults?', f"look: 3 {mark}"), 1),
        (Turn('call desk_count {"to": 8, "pause": 0.05}\nthen\nresults?', "counted"), 1),
        (Turn("call desk_fail {}\nthen\nresults?", "it failed"), 1),
        (Turn("call desk_picture {}\nthen\nimage?", "image: "), 1),
        (Turn(f"pace 0.2\nsay {words} {words}", ends=("stopped", "done"), stops=True), 1),
        (Turn("call desk_wait {}", ends=("stopped",), stops=True), 1),
        (Turn(f"{put}results?", f"put: {mark}", approves=True), 1),
        (Turn(f"{put}say {mark}", mark, approves=False), 1),
    ]
    if instance is not None:
        turns.append((Turn(f"call mcp_{instance}__echo {arguments}\nthen\nresults?", mark), 4))
    each, weights = zip(*turns, strict=True)
    return draw.choices(each, weights)[0]
