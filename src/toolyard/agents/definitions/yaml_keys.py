"""YAML as keys with lines and texts, and nothing built from tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

__all__ = ["YamlEntry", "YamlProblem", "YamlValue", "parse_yaml_mapping"]


@dataclass(frozen=True, slots=True)
class YamlProblem:
    """Why a text is no YAML mapping. ``line`` is counted from 0."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class YamlValue:
    """What stands after a key: a text, a list of values, or something else, which is neither."""

    line: int
    text: str | None = None
    is_quoted: bool = False
    items: tuple[YamlValue, ...] | None = None

    def __str__(self) -> str:
        if self.text is None:
            return "an object" if self.items is None else "a list"
        return f"'{self.text:.60}'" if self.text else "nothing"


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """One key with its value. Lines are counted from 0."""

    key: str
    line: int
    value: YamlValue


def parse_yaml_mapping(text: str) -> list[YamlEntry] | YamlProblem:
    """The keys of a YAML mapping in their order, also those that stand twice. Never raises."""
    # PyYAML takes a while to load, and only a file with agents in it needs it.
    import yaml

    compose = cast(Any, yaml).compose
    try:
        # Nodes, because they know their lines, and because building values from tags can raise anything.
        root = compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(part for part in (error.context, error.problem) if part)
        return YamlProblem(mark.line if mark else 0, words)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        return YamlProblem(0, str(error).partition("\n")[0] or type(error).__name__)
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        return YamlProblem(_node_line(root), "expected one 'key: value' a line")
    pairs = cast(list[tuple[Any, Any]], root.value)
    for key, _ in pairs:
        if not isinstance(key.value, str):
            return YamlProblem(_node_line(key), "a list or an object stands where a key should")
    return [YamlEntry(key.value, _node_line(key), _convert_node(value)) for key, value in pairs]


def _convert_node(node: Any, *, is_nested: bool = False) -> YamlValue:
    found: object = node.value
    if isinstance(found, str):
        return YamlValue(_node_line(node), text=found.strip(), is_quoted=node.style is not None)
    if node.id == "sequence" and not is_nested:
        return YamlValue(
            _node_line(node),
            items=tuple(_convert_node(item, is_nested=True) for item in cast(list[Any], found)),
        )
    return YamlValue(_node_line(node))


def _node_line(node: Any) -> int:
    return cast(int, node.start_mark.line)
