"""Storage of open questions for the page, and of the answers on their way to the process that asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from sqlalchemy import delete, select

from toolyard.store.repositories.replica_messages import SqlMailbox
from toolyard.store.sql.columns import MAX_TEXT_CHARACTERS, clean_text
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.json_text import json_text
from toolyard.store.sql.tables import questions
from toolyard.types.approval import PageQuestion
from toolyard.types.chat import Question

__all__ = ["SqlQuestionStore"]

_POLL_SECONDS = 1.0
"""Interval in which an answer from another process is looked for."""


class SqlQuestionStore:
    """Open questions in a table. An answer deletes its question, and is sent encrypted as a message."""

    def __init__(self, executor: DatabaseExecutor, mailbox: SqlMailbox) -> None:
        self._executor = executor
        self._mailbox = mailbox
        self._answered: dict[str, asyncio.Event] = {}
        """Events of the questions that this process waits for."""

    async def add(self, asked: PageQuestion) -> None:
        """Store a question. Raises StoreError."""
        values = {
            "id": asked.id,
            "owner": asked.owner,
            "server": clean_text(asked.question.server, MAX_TEXT_CHARACTERS),
            "calls": json_text({"calls": list(asked.calls)}),
            "question": json_text(asdict(asked.question)),
            "asked_at": asked.asked_at,
            "expires_at": asked.expires_at,
        }
        await self._executor.write(lambda connection: connection.execute(questions.insert().values(**values)))

    async def list_open(self, owner: str, now: float) -> Sequence[PageQuestion]:
        """Return the open questions of a user, oldest first."""
        is_open = (questions.c.owner == owner) & (questions.c.expires_at > now)
        query = select(questions).where(is_open).order_by(questions.c.asked_at, questions.c.id)
        rows = await self._executor.read_or_default(lambda connection: connection.execute(query).all(), ())
        return [_question_from_row(row) for row in rows]

    async def answer(self, owner: str, question_id: str, answer: Mapping[str, Any]) -> bool:
        """Answer a question. Return False if it is not open any more. Raises StoreError."""
        if not await self._delete((questions.c.id == question_id) & (questions.c.owner == owner)):
            return False
        await self._mailbox.post(_mailbox_name(question_id), orjson.dumps(dict(answer)))
        if (event := self._answered.get(question_id)) is not None:
            event.set()
        return True

    async def close(self, question_id: str) -> None:
        """Remove a question that nobody answered, or that was withdrawn. Raises StoreError."""
        await self._delete(questions.c.id == question_id)

    async def wait_for_answer(self, question_id: str) -> Mapping[str, Any]:
        """Return the answer once there is one. Raises StoreError."""
        event = self._answered[question_id] = asyncio.Event()
        try:
            while not (messages := await self._mailbox.take(_mailbox_name(question_id))):
                try:
                    async with asyncio.timeout(_POLL_SECONDS):
                        await event.wait()
                except TimeoutError:
                    pass
            return orjson.loads(messages[0])
        finally:
            del self._answered[question_id]

    async def _delete(self, condition: Any) -> bool:
        statement = delete(questions).where(condition)
        return await self._executor.write(lambda connection: connection.execute(statement).rowcount) > 0


def _mailbox_name(question_id: str) -> str:
    return f"question {question_id}"


def _question_from_row(row: Any) -> PageQuestion:
    return PageQuestion(
        row.id,
        row.owner,
        tuple(orjson.loads(row.calls)["calls"]),
        Question(**orjson.loads(row.question)),
        row.asked_at,
        row.expires_at,
    )
