"""SQLite FTS5 with a column a field, the issue's weights, Porter stemming and identifiers split."""

from __future__ import annotations

import sqlite3
from typing import Any

from peers.search_driver import LIMIT, drive, parameters, words

_COMMON = """
a an and are as at be by can could do for from have i in is it me my of on or please that the this to was what
which with would you your
"""
STOP_WORDS = frozenset(_COMMON.split())
MOST = 64


class Fts5:
    """A table in memory; a query is its words, any of them."""

    def index(self, tools: list[dict[str, Any]]) -> None:
        self.base = sqlite3.connect(":memory:")
        self.base.execute(
            "CREATE VIRTUAL TABLE tools USING fts5"
            "(name, server, description, parameters, said, about, tokenize='porter unicode61')"
        )
        rows = ((number, *self._row(tool)) for number, tool in enumerate(tools))
        self.base.executemany(
            "INSERT INTO tools(rowid, name, server, description, parameters, said, about)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        self.base.commit()

    def _row(self, tool: dict[str, Any]) -> list[str]:
        names, parameter_texts = parameters(tool.get("input_schema"))
        fields = (
            tool["name"],
            tool["server"],
            tool.get("description") or "",
            " ".join(names),
            " ".join(parameter_texts),
            tool.get("server_description") or "",
        )
        return [" ".join(words(field)) for field in fields]

    def search(self, query: str) -> list[int]:
        query_words = [word for word in dict.fromkeys(words(query)) if word not in STOP_WORDS][:MOST]
        if not query_words:
            return []
        rows = self.base.execute(
            "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 3, 2, 1, 1, 0.3, 0.5) LIMIT ?",
            (" OR ".join(f'"{word}"' for word in query_words), LIMIT),
        )
        return [row[0] for row in rows]


if __name__ == "__main__":
    drive(Fts5())
