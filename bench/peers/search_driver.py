"""What the drivers of the search benchmark share. Each runs in its peer's environment and answers:

    {"do": "index", "files": [[path, copies], …], "count": n}    index the tools of these files, n at most
    {"do": "search", "queries": path, "into": path, "seconds": s} search for each line of a file (a JSON text)

Ids of what was found go into a file, one JSON list a query; a search stops early when its seconds are over.
The same queries are timed a second time, without the file.
Only the standard library is used here, since every peer's environment imports it.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import re
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

__all__ = ["LIMIT", "Searcher", "drive", "parameters", "words"]

LIMIT = 10
_FEWEST = 5
_WARM_UP = 20
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\x00-\x7f]+")


class Searcher(Protocol):
    """A search under measurement. Tools are numbered by their place in the list."""

    def index(self, tools: list[dict[str, Any]]) -> None:
        """Index all."""
        ...

    def search(self, query: str) -> list[int]:
        """The best ten, best first."""
        ...


def parameters(schema: Any) -> tuple[list[str], list[str]]:
    """Names and descriptions of a schema's own properties."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return [], []
    descriptions = [place.get("description") for place in properties.values() if isinstance(place, dict)]
    return list(properties), [text for text in descriptions if isinstance(text, str)]


def words(text: str) -> list[str]:
    """The words of a text, identifiers split, lower case."""
    return [word.lower() for word in _WORD.findall(text)]


def drive(searcher: Searcher, *packages: str) -> None:
    """Answers commands until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    versions = {name: version(name) for name in packages}
    _say(replies, {"python": platform.python_version(), "packages": versions})
    ids: list[str] = []
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if command["do"] == "index":
                tools = _tools(command["files"], command.get("count"))
                ids = [tool["id"] for tool in tools]
                _say(replies, _measure_indexing(searcher, tools) | {"tools": len(tools)})
            else:
                _say(replies, _measure_search(searcher, ids, command))
        except Exception as error:
            _say(replies, {"error": f"{type(error).__name__}: {error}"})


def _say(replies: Any, line: dict[str, Any]) -> None:
    print(json.dumps(line), file=replies, flush=True)


def _tools(files: list[list[Any]], count: int | None) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = []
    for path, copies in files:
        lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
        for copy in range(copies):
            mark = f"-{copy}" if copy else ""
            hits += [
                tool | {"id": tool["id"] + mark, "server": (tool.get("server") or "") + mark}
                for tool in lines
            ]
    return hits[:count]


def _measure_indexing(searcher: Searcher, tools: list[dict[str, Any]]) -> dict[str, float]:
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    searcher.index(tools)
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def _measure_search(searcher: Searcher, ids: list[str], command: dict[str, Any]) -> dict[str, Any]:
    queries = [json.loads(line) for line in Path(command["queries"]).read_text().splitlines()]
    ends = time.perf_counter() + command["seconds"]
    for query in queries[-_WARM_UP:]:
        if time.perf_counter() < ends - command["seconds"] / 2:
            searcher.search(query)
    gc.collect()
    first, passes = _run_queries(searcher, queries, ends)
    # Once more: by then all words were met, as they are in a process that has run for a while.
    again, _ = _run_queries(searcher, queries[: len(first)], ends + command["seconds"])
    with Path(command["into"]).open("w") as into:
        into.writelines(json.dumps([ids[number] for number in one]) + "\n" for one in passes)
    timings = {"p50": _at(first, 0.5), "p95": _at(first, 0.95)}
    return timings | {"again": _at(again, 0.5), "again95": _at(again, 0.95), "queries": len(first)}


def _run_queries(searcher: Searcher, queries: list[str], ends: float) -> tuple[list[float], list[list[int]]]:
    """What each query took, and what it found."""
    walls: list[float] = []
    hit_lists: list[list[int]] = []
    for query in queries:
        start = time.perf_counter()
        hit_lists.append(searcher.search(query))
        walls.append(time.perf_counter() - start)
        if start > ends and len(walls) >= _FEWEST:
            break
    return walls, hit_lists


def _at(samples: list[float], share: float) -> float:
    return sorted(samples)[int(len(samples) * share)]
