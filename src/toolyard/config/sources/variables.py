"""``${VAR}``, ``${VAR:-default}`` and ``${env:VAR}`` in a text; ``$${`` stands for a literal ``${``.

Other things in braces are left as they are, since a shell may be meant to read them, except those that other
clients fill in (``${input:token}``): sent as they stand they would be wrong, so they count as unresolved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Expansion", "expand_variables", "find_variable_names"]

_VARIABLE_REFERENCE = re.compile(
    r"\$\$\{"
    r"|\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}"
    r"|(?P<foreign>\$\{[A-Za-z]+:[A-Za-z_][^{}]*\})"
    r"|(?P<nested>\$\{(?:env:)?[A-Za-z_][A-Za-z0-9_]*:-[^{}]*\{)"
)


@dataclass(frozen=True, slots=True)
class Expansion:
    """A text with its variables filled in, and a reason for each that could not be."""

    text: str
    names: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def expand_variables(text: str, env: Mapping[str, str]) -> Expansion:
    """Fill in the variables. As in a shell, the default stands in for an empty variable too."""
    if "${" not in text:
        return Expansion(text)
    names: list[str] = []
    faults: list[str] = []

    def replace_reference(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match["foreign"]:
            faults.append(f"holds {match[0]}, which only another client can fill in")
        elif match["nested"]:
            faults.append("has a default with braces in it, which cannot be read")
        elif name is None:
            return "${"
        else:
            names.append(name)
            value = env.get(name)
            if default is not None:
                return value or default
            if value is not None:
                return value
            faults.append(f"needs the variable {name}, which is not set")
        return match[0]

    expanded = _VARIABLE_REFERENCE.sub(replace_reference, text)
    return Expansion(expanded, tuple(names), tuple(faults))


def find_variable_names(text: str) -> tuple[str, ...]:
    """The variables that ``expand`` would look up."""
    return tuple(match["name"] for match in _VARIABLE_REFERENCE.finditer(text) if match["name"])
