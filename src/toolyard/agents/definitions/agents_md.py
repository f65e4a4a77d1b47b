"""Parse AGENTS.md into agents, and write agents in its format."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolyard.agents.definitions.front_matter import FrontMatter, parse_front_matter
from toolyard.agents.definitions.sections import AgentSection, split_sections
from toolyard.config.file_io import read_text_file
from toolyard.errors import AgentsError, ConfigError, Problem
from toolyard.types.agent import Agent

__all__ = [
    "AgentsFile",
    "agent_id",
    "find_agent",
    "find_agents_file",
    "format_agent",
    "load_agents",
    "parse_agents",
    "read_agents",
    "read_agents_leniently",
]


@dataclass(frozen=True, slots=True)
class AgentsFile:
    """The agents of a file in order, hints for its author, and problems because of which it is not used."""

    agents: tuple[Agent, ...]
    hints: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()

    def require_valid(self) -> AgentsFile:
        """Return the file itself. Raises AgentsError if it has problems."""
        if self.problems:
            raise AgentsError(self.problems)
        return self


def parse_agents(text: str, file: str | None = None) -> AgentsFile:
    """Parse the text of an AGENTS.md file; a file without agents is valid.

    Raises AgentsError with all problems, each with its line.
    """
    return _parse_leniently(text, file).require_valid()


def _parse_leniently(text: str, file: str | None) -> AgentsFile:
    sections = split_sections(text, file)
    problems, hints = list(sections.problems), list(sections.hints)
    agents: dict[str, Agent] = {}
    for section in sections.agent_sections:
        matter = parse_front_matter(
            section.front_matter, section.front_matter_line, file, has_heading_name=section.name is not None
        )
        agent = _build_agent(section, matter, file)
        problems += _prefix_agent_name(matter.problems, agent)
        hints += _prefix_agent_name(matter.hints, agent)
        if not agent.id:
            problems.append(_missing_name_problem(section, matter, file))
        elif agent.id in agents:
            problems.append(_duplicate_id_problem(agent, agents[agent.id]))
        else:
            agents[agent.id] = agent
    for found in (hints, problems):
        found.sort(key=lambda problem: problem.line or 0)
    return AgentsFile(tuple(agents.values()), tuple(hints), tuple(problems))


def find_agents_file(configured_path: Path | None, data_dir: Path) -> Path | None:
    """Return the configured path, else the file in the data directory if it exists."""
    default_path = data_dir / "AGENTS.md"
    return configured_path or (default_path if default_path.is_file() else None)


def read_agents(path: Path) -> AgentsFile:
    """Return the agents of a file. Raises AgentsError, also if it cannot be read."""
    return read_agents_leniently(path).require_valid()


def load_agents(configured_path: Path | None, data_dir: Path) -> tuple[Agent, ...]:
    """Return the agents of the file that ``find_agents_file`` finds; none without one. Raises AgentsError."""
    path = find_agents_file(configured_path, data_dir)
    return () if path is None else read_agents(path).agents


def read_agents_leniently(path: Path) -> AgentsFile:
    """Return the agents of a file together with its problems. Raises AgentsError if it cannot be read."""
    try:
        text = read_text_file(path)
    except ConfigError as error:
        raise AgentsError([Problem(f"cannot be read: {error.problems[0].message}", str(path))]) from None
    return _parse_leniently(text, str(path))


def agent_id(name: str) -> str:
    """Return the name in lower case, with a hyphen for each run of characters other than letters and
    digits.
    """
    letters = unicodedata.normalize("NFC", name.lower())
    words = "".join(letter if letter.isalnum() else " " for letter in letters)
    return "-".join(words.split())


def find_agent(agents: Mapping[str, Agent], name: str) -> Agent | None:
    """Return the agent with this id or name, if there is one."""
    return agents.get(name) or agents.get(agent_id(name))


def _build_agent(section: AgentSection, front_matter: FrontMatter, file: str | None) -> Agent:
    values = dict(front_matter.values)
    own_name = values.pop("name", "")
    name = section.name or own_name
    return Agent(agent_id(name), name, prompt=section.prompt, file=file, line=section.line, **values)


def _prefix_agent_name(problems: list[Problem], agent: Agent) -> list[Problem]:
    """Return the problems with the agent's name in front of the key."""
    return [
        replace(each, path=".".join(part for part in (agent.name, each.path) if part)) for each in problems
    ]


def _missing_name_problem(section: AgentSection, front_matter: FrontMatter, file: str | None) -> Problem:
    name = section.name or front_matter.values.get("name")
    if name is None:
        hint = "add a name: key, or put a ## heading before the front matter"
        return Problem(
            "a file that starts with front matter defines one agent and needs a name",
            file,
            section.line,
            hint=hint,
        )
    return Problem(f"the name '{name}' contains no letter or digit", file, section.line)


def _duplicate_id_problem(agent: Agent, first: Agent) -> Problem:
    return Problem(
        f"two agents have the id '{agent.id}'; the first is on line {first.line}",
        agent.file,
        agent.line,
        agent.name,
        "rename one of them",
    )


_ESCAPED_PATTERN = re.compile(r'["\\\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]')
"""Characters that YAML does not allow in a quoted text, or that would end one."""


def format_agent(agent: Agent) -> str:
    """Return a file with one agent, which reads back equal.

    The name is in the front matter, so that the prompt may contain anything: the headings of other agents,
    and code blocks that are never closed.
    """
    return "\n".join(["---", *_format_keys(agent), "---", "", agent.prompt, ""])


def _format_keys(agent: Agent) -> Iterator[str]:
    yield f"name: {_quote(agent.name)}"
    if agent.description:
        yield f"description: {_quote(agent.description)}"
    if agent.model is not None:
        yield f"model: {_quote(agent.model)}"
    if agent.temperature is not None:
        yield f"temperature: {agent.temperature!r}"
    if agent.tools is not None:
        # The list of tools has a reader of its own, in which a backslash stands before any character.
        yield from _format_list("tools", [re.sub(r'(["\\])', r"\\\1", each) for each in agent.tools])
    if agent.bundles:
        yield from _format_list("bundles", [_escape(each) for each in agent.bundles])
    if agent.mode is not None:
        yield f"mode: {agent.mode}"
    if agent.max_steps is not None:
        yield f"max_steps: {agent.max_steps}"
    if agent.starters:
        yield from _format_list("starters", [_escape(each) for each in agent.starters])


def _format_list(key: str, escaped_texts: Sequence[str]) -> list[str]:
    if not escaped_texts:
        return [f"{key}: []"]
    return [f"{key}:", *(f'  - "{each}"' for each in escaped_texts)]


def _quote(text: str) -> str:
    return f'"{_escape(text)}"'


def _escape(text: str) -> str:
    return _ESCAPED_PATTERN.sub(_escape_character, text)


def _escape_character(match: re.Match[str]) -> str:
    character = match[0]
    if character in '"\\':
        return f"\\{character}"
    return "\\n" if character == "\n" else f"\\u{ord(character):04x}"
