"""From the ids of bundles to the bundles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from toolyard.errors import ConfigError, Problem
from toolyard.types.server import Bundle

__all__ = ["select_bundles"]


def select_bundles(ids: Iterable[str], known: Mapping[str, Bundle]) -> tuple[Bundle, ...]:
    """The bundles of these ids. Raises ConfigError, naming every id that no bundle has.

    An unknown id must not shrink the selection: an empty one leaves all servers open.
    """
    wanted = tuple(dict.fromkeys(ids))
    problems = [_unknown_bundle_problem(each, known) for each in wanted if each not in known]
    if problems:
        raise ConfigError(problems)
    return tuple(known[each] for each in wanted)


def _unknown_bundle_problem(bundle_id: str, known: Mapping[str, Bundle]) -> Problem:
    similar = get_close_matches(bundle_id, known, n=1)
    hint = (
        f"did you mean '{similar[0]}'?" if similar else 'bundles stand under "bundles" of the configuration'
    )
    return Problem(f"there is no bundle '{bundle_id}'", hint=hint)
