"""Questions from servers that several clients share, answered by the person on a page."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolyard.agents.chat.server_questions import CANCEL_RESULT, Declined
from toolyard.agents.chat.server_request_parsing import parse_elicitation
from toolyard.clients.callbacks import CapabilityNotOffered, InFlightCall
from toolyard.errors import CallTimeout, ToolyardError
from toolyard.store.repositories.approvals import SqlQuestionStore
from toolyard.types.approval import PageQuestion

__all__ = ["PageQuestions"]

log = logging.getLogger("toolyard.questions")

_MAX_OPEN_QUESTIONS = 20
"""Maximum number of open questions per person; further ones are cancelled."""
_PROGRESS_SECONDS = 15.0
"""Interval in which waiting callers are told where the question is."""


class PageQuestions:
    """Asks on the page where no single client can be asked, and tells the waiting callers its address."""

    def __init__(
        self,
        store: SqlQuestionStore,
        page_url: str,
        wait_seconds: float,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``wait_seconds`` is the time after which an unanswered question ends its calls."""
        self._store = store
        self._page_url = page_url
        self._wait_seconds = wait_seconds
        self._clock = clock

    async def answer(
        self,
        owner: str,
        server_id: str,
        method: str,
        params: Mapping[str, Any],
        calls: Sequence[InFlightCall],
    ) -> Mapping[str, Any]:
        """Return the result of a server's request that may belong to any of these calls.

        Raises Declined for a sampling request: a person cannot tell whose model it would use.
        """
        if method == "sampling/createMessage":
            raise Declined("the client that made the call is unknown, so no model can be used")
        if method != "elicitation/create":
            raise CapabilityNotOffered(method)
        question = parse_elicitation(params)
        if question is None or not calls:
            return CANCEL_RESULT
        now = self._clock()
        id = secrets.token_hex(12)
        names = tuple(dict.fromkeys(f"{call.name} ({call.client_name})" for call in calls))
        question = replace(question, id=id, server=server_id)
        page_question = PageQuestion(id, owner, names, question, now, now + self._wait_seconds)
        try:
            if not await self._store.add(page_question, _MAX_OPEN_QUESTIONS):
                log.warning("a question from '%s' was cancelled: too many questions are open", server_id)
                return CANCEL_RESULT
        except ToolyardError as error:
            log.warning("a question from '%s' cannot be stored: %s", server_id, error.cause)
            return CANCEL_RESULT
        return await self._wait_for_answer(page_question, calls)

    async def _wait_for_answer(
        self, page_question: PageQuestion, calls: Sequence[InFlightCall]
    ) -> Mapping[str, Any]:
        link = f"{self._page_url}#q-{page_question.id}"
        answer = asyncio.ensure_future(self._store.wait_for_answer(page_question.id))
        loop = asyncio.get_running_loop()
        end = loop.time() + self._wait_seconds
        try:
            while not answer.done() and (left := end - loop.time()) > 0:
                for call in calls:
                    if call.report_progress is not None:
                        call.report_progress(f"waiting for your answer to a question at {link}")
                await asyncio.wait([answer], timeout=min(left, _PROGRESS_SECONDS))
            if answer.done():
                return answer.result()
        except ToolyardError as error:
            log.warning("waiting for the answer to a question failed: %s", error.cause)
            return CANCEL_RESULT
        finally:
            # Even if all callers are cancelled: a question that nobody waits for must not stay on the page.
            answer.cancel()
            try:
                await self._store.close(page_question.id)
            except ToolyardError as error:
                log.warning("a question could not be removed: %s", error.cause)
        for call in calls:
            if call.fail is not None:
                # An error for each call: one that is raised in several tasks would collect their frames.
                call.fail(
                    CallTimeout(
                        f"a question was not answered at {link} within {self._wait_seconds:g} s",
                        hint="make the call again, and answer the question on that page",
                    )
                )
        return CANCEL_RESULT
