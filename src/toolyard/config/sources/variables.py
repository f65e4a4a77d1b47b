"""Expand ``${VAR}``, ``${VAR:-default}`` and ``${env:VAR}``; ``$${`` is an escaped literal ``${``.

Other expressions in braces stay unchanged, because they may be meant for a shell. Exceptions are references
that only other clients can resolve (``${input:token}``): they would be wrong if sent unchanged, so they are
faults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Expansion", "expand_variables", "find_variable_names"]

# In this order: an escaped "${"; a variable with an optional default; a reference of another client, such as
# ${input:token}; and a default that contains a brace, e.g. ${A:-${B}}, which is reported instead of being
# expanded halfway.
_VARIABLE_REFERENCE = re.compile(
    r"\$\$\{"
    r"|\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}"
    r"|(?P<foreign>\$\{[A-Za-z]+:[A-Za-z_][^{}]*\})"
    r"|(?P<nested>\$\{(?:env:)?[A-Za-z_][A-Za-z0-9_]*:-[^{}]*\{)"
)


@dataclass(frozen=True, slots=True)
class Expansion:
    """Expanded text, the names of its variables, and one fault for each that could not be expanded."""

    text: str
    names: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def expand_variables(text: str, env: Mapping[str, str]) -> Expansion:
    """Expand the variables of a text. As in a shell, the default also replaces an empty variable."""
    if "${" not in text:
        return Expansion(text)
    names: list[str] = []
    faults: list[str] = []

    def replace_reference(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match["foreign"]:
            faults.append(f"contains {match[0]}, which only another client can resolve")
        elif match["nested"]:
            faults.append("has a default value with braces, which is not supported")
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
    """Return the names that ``expand_variables`` would look up."""
    return tuple(match["name"] for match in _VARIABLE_REFERENCE.finditer(text) if match["name"])
