"""BM25F with clauses merged, as it is usually built: what plain word statistics find, without more knowledge.

It shows how hard a set of queries is, whatever the machine. Nothing here is made to be fast.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from statistics import mean
from typing import Any

from peers.search_driver import LIMIT, drive, parameters, words
from peers.search_fts5 import STOP_WORDS
from toolyard.catalog.search.stemmer import stem

FIELDS = {
    # weight, and how much a long text is held against a word of it
    "name": (3.0, 0.3),
    "server": (2.0, 0.3),
    "description": (1.0, 0.6),
    "parameters": (1.0, 0.5),
    "server_description": (0.5, 0.5),
    "said": (0.3, 0.6),
}
SATURATION = 1.2
CLAUSE = re.compile(r"[.?!;,\n]+(?:\s|$)|\b(?:and|then|also|after|before)\b", re.IGNORECASE)
SHORTEST_CLAUSE = 2
Scores = dict[int, float]


class Bm25f:
    """A table of impacts for each word."""

    def index(self, tools: list[dict[str, Any]]) -> None:
        texts = [self._texts(tool) for tool in tools]
        usual = {field: mean(len(one[field]) for one in texts) or 1.0 for field in FIELDS}
        self.impacts: dict[str, Scores] = defaultdict(dict)
        for number, one in enumerate(texts):
            counts: dict[str, float] = defaultdict(float)
            for field, (weight, strict) in FIELDS.items():
                length = 1 - strict + strict * len(one[field]) / usual[field]
                for word in one[field]:
                    counts[word] += weight / length
            for word, count in counts.items():
                self.impacts[word][number] = count / (count + SATURATION)
        for term_impacts in self.impacts.values():
            rarity = math.log(1 + (len(tools) - len(term_impacts) + 0.5) / (len(term_impacts) + 0.5))
            term_impacts.update({number: rarity * impact for number, impact in term_impacts.items()})

    def search(self, query: str) -> list[int]:
        scores = self._scores(stems(query))
        clauses = [clause for text in CLAUSE.split(query) if len(clause := stems(text)) >= SHORTEST_CLAUSE]
        if len(clauses) > 1 and scores:
            scores = self._merged(scores, clauses)
        return sorted(scores, key=lambda number: -scores[number])[:LIMIT]

    def _texts(self, tool: dict[str, Any]) -> dict[str, list[str]]:
        names, parameter_texts = parameters(tool.get("input_schema"))
        document = tool | {"parameters": " ".join(names), "said": " ".join(parameter_texts)}
        return {field: stems(document.get(field) or "") for field in FIELDS}

    def _scores(self, query_terms: list[str]) -> Scores:
        scores: Scores = defaultdict(float)
        for word in dict.fromkeys(query_terms):
            for number, impact in self.impacts.get(word, {}).items():
                scores[number] += impact
        return scores

    def _merged(self, scores: Scores, clauses: list[list[str]]) -> Scores:
        """Half of what the whole query says of a tool, half of what the clause says that fits it best."""
        top, best = max(scores.values()), dict[int, float]()
        for clause in clauses:
            clause_scores = self._scores(clause)
            highest = max(clause_scores.values(), default=1.0)
            for number, score in clause_scores.items():
                best[number] = max(best.get(number, 0.0), score / highest * (highest / top) ** 0.5)
        return {number: score / top + best.get(number, 0.0) for number, score in scores.items()}


def stems(text: str) -> list[str]:
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


if __name__ == "__main__":
    drive(Bm25f())
