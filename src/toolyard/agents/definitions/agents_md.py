"""AGENTS.md: from its text to its agents."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path

from toolyard.agents.definitions.front_matter import Matter, read_matter
from toolyard.agents.definitions.sections import Section, split
from toolyard.config.file_reader import decode, read_bytes
from toolyard.errors import AgentsError, ConfigError, Problem
from toolyard.types.agent import Agent

__all__ = ["AgentsFile", "agent_id", "agents_path", "parse_agents", "read_agents"]


@dataclass(frozen=True, slots=True)
class AgentsFile:
    """The agents of a file in their order, and what its author may want to know."""

    agents: tuple[Agent, ...]
    hints: tuple[Problem, ...] = ()


def parse_agents(text: str, file: str | None = None) -> AgentsFile:
    """Read the text of an AGENTS.md file; one without agents is no mistake.

    Raises AgentsError with all problems at once, each with its line.
    """
    sections = split(text, file)
    problems, hints = list(sections.problems), list(sections.hints)
    agents: dict[str, Agent] = {}
    for section in sections.found:
        matter = read_matter(section.matter, section.matter_line, file, named=section.name is not None)
        agent = _agent(section, matter, file)
        problems += _placed(matter.problems, agent)
        hints += _placed(matter.hints, agent)
        if not agent.id:
            problems.append(_nameless(section, matter, file))
        elif agent.id in agents:
            problems.append(_twice(agent, agents[agent.id]))
        else:
            agents[agent.id] = agent
    if problems:
        raise AgentsError(sorted(problems, key=lambda problem: problem.line or 0))
    return AgentsFile(tuple(agents.values()), tuple(sorted(hints, key=lambda hint: hint.line or 0)))


def agents_path(chosen: Path | None, data_dir: Path) -> Path | None:
    """Where the file stands: where the setting says, else in the data directory, where it may be missing."""
    own = data_dir / "AGENTS.md"
    return chosen or (own if own.is_file() else None)


def read_agents(path: Path) -> AgentsFile:
    """The agents of a file. Raises AgentsError, also where it cannot be read."""
    try:
        text = decode(read_bytes(path), str(path))
    except ConfigError as error:
        raise AgentsError([Problem(f"cannot be read: {error.problems[0].message}", str(path))]) from None
    return parse_agents(text, str(path))


def agent_id(name: str) -> str:
    """The name in lower case, with a dash for whatever is neither letter nor digit."""
    letters = unicodedata.normalize("NFC", name.lower())
    words = "".join(letter if letter.isalnum() else " " for letter in letters)
    return "-".join(words.split())


def _agent(section: Section, matter: Matter, file: str | None) -> Agent:
    name = section.name or matter.name or ""
    return Agent(
        agent_id(name),
        name,
        matter.description,
        section.prompt,
        matter.model,
        matter.temperature,
        matter.tools,
        matter.bundles,
        matter.mode,
        matter.max_steps,
        file,
        section.line,
    )


def _placed(problems: list[Problem], agent: Agent) -> list[Problem]:
    """The same problems, with the agent's name before the key."""
    return [
        replace(each, path=".".join(part for part in (agent.name, each.path) if part)) for each in problems
    ]


def _nameless(section: Section, matter: Matter, file: str | None) -> Problem:
    if section.name is None and matter.name is None:
        hint = "add name: to it, or put a ## heading before it"
        return Problem(
            "a file that begins with front matter is one agent, and needs a name",
            file,
            section.line,
            hint=hint,
        )
    name = section.name or matter.name
    return Problem(f"the name '{name}' has neither letter nor digit", file, section.line)


def _twice(agent: Agent, first: Agent) -> Problem:
    return Problem(
        f"two agents have the id '{agent.id}', the first stands on line {first.line}",
        agent.file,
        agent.line,
        agent.name,
        "give one of them another name",
    )
