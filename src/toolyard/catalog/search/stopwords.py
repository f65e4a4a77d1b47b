"""Words that say little: those that are never looked for, and those that only count when others match."""

from __future__ import annotations

__all__ = ["STOP_WORDS", "WEAK_WORDS"]

_STOP_WORD_TEXT = """
a about all also am an and any are aren as at be been being both but by can could d did didn do does
doesn doing don done e each eg etc few for from g had has have having he her here hers him his how i
id ie if im in into is isn it its itself ive just let lets ll m may me might mine more most must my
no nor not of on only onto or other our ours over own per please re s same shall she should so some
such t than that the their theirs them then there these they this those to too under us ve very via
was wasn we were what when where which who whom whose why will with without would you your yours
"""

_WEAK_WORD_TEXT = """
able additionally after api assist based before best certain check checking currently detail details
different ensure fetch finally find finding first furthermore get getting give given gives giving
good great hello help helping hey hi include included includes including info information interested
know lastly like look looking looks make makes making moreover need needs new next obtain obtaining
ok okay particular plan planning plans provide providing question questions really recommend
recommends retrieve retrieving second see show showing shows specific suggest suggesting suggestions
task tasks tell thank thanks third tool tools trying use used uses using various want wants wish
wondering working
"""

STOP_WORDS = frozenset(_STOP_WORD_TEXT.split())
"""Lower-case words that are neither indexed nor asked for."""

WEAK_WORDS = frozenset(_WEAK_WORD_TEXT.split())
"""Lower-case words by which people wrap a request. They are looked for, but count for less."""
