"""Look up bundles by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from toolyard.errors import ConfigError, Problem
from toolyard.types.server import Bundle

__all__ = ["select_bundles"]


def select_bundles(ids: Iterable[str], known: Mapping[str, Bundle]) -> tuple[Bundle, ...]:
    """Return the bundles with these ids. Raises ConfigError with one problem per unknown id.

    Unknown ids must not be skipped: an empty selection means that bundles restrict nothing.
    """
    unique_ids = tuple(dict.fromkeys(ids))
    problems = [_unknown_bundle_problem(each, known) for each in unique_ids if each not in known]
    if problems:
        raise ConfigError(problems)
    return tuple(known[each] for each in unique_ids)


def _unknown_bundle_problem(bundle_id: str, known: Mapping[str, Bundle]) -> Problem:
    similar = get_close_matches(bundle_id, known, n=1)
    hint = f"did you mean '{similar[0]}'?" if similar else 'define it under "bundles" in the configuration'
    return Problem(f"unknown bundle '{bundle_id}'", hint=hint)
