"""Requests of several rounds: forwards the client's answers to the server, and keeps the state in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from toolyard.core.call_approvals import CURRENT_APPROVAL, RequestApproval
from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.incoming_request import ClientRequest, describe_client
from toolyard.gateway.input_required.remote_calls import RoundOutcome
from toolyard.gateway.input_required.suspended_call import CALL_ID_KEY, MultiRoundCall
from toolyard.gateway.input_required.visible_questions import check_input_requests, check_question
from toolyard.protocol.constants import CLIENT_INFO_KEY, INVALID_PARAMS
from toolyard.protocol.server import build_input_required_result
from toolyard.types.call import Caller, McpRequest, RequestClient

__all__ = ["InputRequiredRunner", "UpstreamWork"]


UpstreamWork: TypeAlias = Callable[[RequestClient], Awaitable[dict[str, Any]]]
"""Performs a request to a server on behalf of the given client."""


class InputRequiredRunner:
    """Runs requests of one caller."""

    def __init__(self, gateway: Gateway, caller: Caller) -> None:
        self._gateway = gateway
        self._caller = caller
        self._principal = caller.principal

    def run(self, request: ClientRequest, work: UpstreamWork) -> Awaitable[dict[str, Any]]:
        """Return the result, or ``input_required`` if the client has to answer a question.

        Raises what ``work`` raises, and RpcErrorResponse for a round that does not fit.
        """
        client = request.begin_upstream()
        return self.run_round(request, work) if client is None else work(client)

    def forward(
        self, request: ClientRequest, server_id: str, method: str, params: Mapping[str, Any]
    ) -> Awaitable[dict[str, Any]]:
        """Send a repeatable request to a server, and return its result like ``run``."""

        def send(client: RequestClient) -> Awaitable[dict[str, Any]]:
            on_progress = request.on_progress and (client.on_progress or request.on_progress)
            forwarded = McpRequest(
                method, params, repeatable=True, meta=request.meta, on_progress=on_progress, client=client
            )
            return self._gateway.manager.send(server_id, self._caller, forwarded)

        return self.run(request, send)

    async def run_round(self, request: ClientRequest, work: UpstreamWork) -> dict[str, Any]:
        """Run one round of a request that may take several. Return and raise as ``run``."""
        # The state is sealed for this principal and request. A client can neither read nor change it, nor use
        # it for another call.
        content = self.open_state(request)
        passed = RequestApproval(content.get("approved"))
        CURRENT_APPROVAL.set(passed)
        outcome, place = await self._round_outcome(request, content, work)
        result = outcome.result
        if result is None:
            return build_input_required_result(outcome.input_requests, self.seal_state(request, place))
        state = result.get("requestState")
        if result.get("resultType") == "input_required" and isinstance(state, str):
            more = {"upstream": state}
            # The approval travels with the state, so that a person is not asked again in the next round of
            # the same call (decision 0038).
            if passed.approved_hash is not None:
                more["approved"] = passed.approved_hash
            return {**result, "requestState": self.seal_state(request, more)}
        return result

    async def _round_outcome(
        self, request: ClientRequest, content: Mapping[str, Any], work: UpstreamWork
    ) -> tuple[RoundOutcome, Mapping[str, Any]]:
        """Return the outcome of this round, and where the call is suspended if it continues."""
        gateway = self._gateway
        if CALL_ID_KEY not in content:
            call = self._start_call(request, content, work)
        elif (call := gateway.suspended_calls.find(content[CALL_ID_KEY])) is not None:
            call.receive_round(request)
        else:
            return await gateway.remote_calls.continue_call(
                content.get("at"), content[CALL_ID_KEY], request
            ), content
        assert call.task is not None
        result = await call.wait_for_outcome(call.task)
        return RoundOutcome(result, call.input_requests()), {
            CALL_ID_KEY: call.id,
            "at": gateway.remote_calls.replica_id,
        }

    def _start_call(
        self, request: ClientRequest, content: Mapping[str, Any], work: UpstreamWork
    ) -> MultiRoundCall:
        more: dict[str, Any] = {}
        given = request.params.get("inputResponses")
        if given is not None:
            more["inputResponses"] = given
        if (state := content.get("upstream")) is not None:
            more["requestState"] = state

        return self._gateway.suspended_calls.start(request, lambda call: work(self._make_client(call, more)))

    def _make_client(self, call: MultiRoundCall, round_params: Mapping[str, Any]) -> RequestClient:
        """Return the client of a call that may take several rounds; ``round_params`` are those of a continued
        request: the client's answers, and the server's state."""
        request, manager, principal = call.request, self._gateway.manager, self._principal

        async def ask(server_id: str, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            server = manager.find(server_id, principal)
            return await call.ask_client(method, check_question(server, method, params))

        def check_result(server_id: str, result: dict[str, Any]) -> dict[str, Any]:
            return check_input_requests(manager.find(server_id, principal), result)

        return RequestClient(
            None if self._gateway.sole_client is None else self._gateway.sole_client.key,
            describe_client(request.meta.get(CLIENT_INFO_KEY)),
            request.capabilities,
            ask,
            request.log_level,
            lambda params: call.request.send_log(params),
            call.send_progress,
            round_params,
            check_result,
        )

    def open_state(self, request: ClientRequest) -> Mapping[str, Any]:
        """Return the state of an earlier round of this request; empty in the first round. Raises
        RpcErrorResponse."""
        params = request.params
        if "inputResponses" in params and not isinstance(params["inputResponses"], dict):
            raise RpcErrorResponse(INVALID_PARAMS, "inputResponses must be an object")
        if params.get("requestState") is None:
            return {}
        sealer = self._gateway.sealer
        return sealer.open(params["requestState"], self._principal.id, request.method, params)

    def seal_state(self, request: ClientRequest, content: Mapping[str, Any]) -> str:
        """Return the state for the next round of this request."""
        return self._gateway.sealer.seal(content, self._principal.id, request.method, request.params)
