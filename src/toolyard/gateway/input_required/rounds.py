"""Requests that may take several rounds: the client's answers reach the server, and the state comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from toolyard.gateway.client_request import Request
from toolyard.gateway.error_responses import Refusal
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.input_required.approvals import PASSED, Passed
from toolyard.gateway.input_required.remote_calls import Outcome
from toolyard.gateway.input_required.suspended_call import Parked
from toolyard.gateway.upstream import needs_lane
from toolyard.protocol.constants import INVALID_PARAMS
from toolyard.protocol.server import input_required
from toolyard.types.principal import Principal
from toolyard.types.server import Timeouts

__all__ = ["Rounds", "Send", "Work"]


class Send(Protocol):
    """Takes a request to a server, over the connection that is right for who asks."""

    def __call__(
        self,
        server_id: str,
        method: str,
        params: Mapping[str, Any],
        repeatable: bool = False,
        timeouts: Timeouts | None = None,
    ) -> Awaitable[dict[str, Any]]: ...


Work: TypeAlias = Callable[[Send], Awaitable[dict[str, Any]]]
"""Does what a request wants, sending to servers by what it is given."""


class Rounds:
    """For one principal."""

    def __init__(self, gateway: Gateway, principal: Principal) -> None:
        self._gateway = gateway
        self._principal = principal

    async def run(self, request: Request, work: Work) -> dict[str, Any]:
        """The result, or ``input_required`` where the client is asked. Raises what the work raises, and
        Refusal for a round that does not fit."""
        rounds = "requestState" in request.params or "inputResponses" in request.params
        if request.session is not None or not (rounds or needs_lane(request)):
            return await work(self.plain(request))
        return await self._round(request, work)

    def plain(self, request: Request) -> Send:
        """Sends what is done in one round."""

        async def send(
            server_id: str,
            method: str,
            params: Mapping[str, Any],
            repeatable: bool = False,
            timeouts: Timeouts | None = None,
        ) -> dict[str, Any]:
            upstream = self._gateway.upstream
            return await upstream.for_request(
                server_id,
                self._principal,
                method,
                params,
                request,
                repeatable=repeatable,
                timeouts=timeouts,
            )

        return send

    async def _round(self, request: Request, work: Work) -> dict[str, Any]:
        content = self.opened(request)
        passed = Passed(content.get("approved"))
        PASSED.set(passed)
        outcome, place = await self._outcome(request, content, work)
        result = outcome.result
        if result is None:
            return input_required(outcome.asks, self.seal(request, place))
        state = result.get("requestState")
        if result.get("resultType") == "input_required" and isinstance(state, str):
            more = {"upstream": state}
            if passed.hash is not None:
                more["approved"] = passed.hash
            return {**result, "requestState": self.seal(request, more)}
        return result

    async def _outcome(
        self, request: Request, content: Mapping[str, Any], work: Work
    ) -> tuple[Outcome, Mapping[str, Any]]:
        """What comes of this round, and where the call waits if it goes on."""
        gateway = self._gateway
        if "parked" not in content:
            parked = self._started(request, content, work)
        elif (parked := gateway.parked.find(content["parked"])) is not None:
            parked.take(request)
        else:
            return await gateway.handing.hand_over(content.get("at"), content["parked"], request), content
        assert parked.task is not None
        result = await parked.outcome(parked.task)
        return Outcome(result, parked.input_requests()), {"parked": parked.id, "at": gateway.handing.me}

    def _started(self, request: Request, content: Mapping[str, Any], work: Work) -> Parked:
        more: dict[str, Any] = {}
        given = request.params.get("inputResponses")
        if given is not None:
            more["inputResponses"] = given
        if (state := content.get("upstream")) is not None:
            more["requestState"] = state

        async def through(parked: Parked) -> dict[str, Any]:
            async def send(
                server_id: str,
                method: str,
                params: Mapping[str, Any],
                repeatable: bool = False,
                timeouts: Timeouts | None = None,
            ) -> dict[str, Any]:
                upstream = self._gateway.upstream
                return await upstream.for_round(
                    server_id,
                    self._principal,
                    method,
                    {**params, **more},
                    parked,
                    repeatable=repeatable,
                    timeouts=timeouts,
                )

            return await work(send)

        return self._gateway.parked.start(request, through)

    def opened(self, request: Request) -> Mapping[str, Any]:
        """What we sealed for this request in an earlier round; nothing in the first one. Raises Refusal."""
        params = request.params
        if "inputResponses" in params and not isinstance(params["inputResponses"], dict):
            raise Refusal(INVALID_PARAMS, "inputResponses is no object")
        if params.get("requestState") is None:
            return {}
        sealer = self._gateway.sealer
        return sealer.open(params["requestState"], self._principal.id, request.method, params)

    def seal(self, request: Request, content: Mapping[str, Any]) -> str:
        """The state that the client brings with the next round of this request."""
        return self._gateway.sealer.seal(content, self._principal.id, request.method, request.params)
