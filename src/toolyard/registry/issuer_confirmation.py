"""Confirmation of the issuers that may receive configured client secrets.

A server names its authorization server itself, so a hostile server could name its own. An admin therefore
confirms the issuer before a client secret is sent to it. Discovery reads public metadata and sends no
credentials.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from toolyard.auth.client_registration import confirmed_issuer
from toolyard.auth.errors import AuthError, AuthUnavailable, DiscoveryFailed
from toolyard.auth.provider import Challenge, parse_challenge
from toolyard.auth.sign_in_flow import SignInFlow
from toolyard.auth.sign_in_target import SignInTarget
from toolyard.auth.storage import AuthStorage, same_issuer
from toolyard.errors import Problem, SignInNeeded
from toolyard.registry.auth_provider_factory import choice_target, config_grant_key, has_authorization_header
from toolyard.registry.errors import Invalid
from toolyard.registry.field_validation import issuer_fault
from toolyard.registry.service import Registry
from toolyard.types.account import Principal
from toolyard.types.registry import AuthChoice, AuthKind, RegistryServer
from toolyard.types.server import HttpSpec, OAuthSpec, Server

__all__ = ["ClientIssuer", "IssuerConfirmation"]

_DISCOVERY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ClientIssuer:
    """The issuer of a configured client. If discovery failed, ``issuer`` is empty and ``error`` is set."""

    issuer: str = ""
    confirmed: bool = False
    error: AuthError | AuthUnavailable | None = None
    choice: AuthChoice | None = None
    """The sign-in choice of a registry server; None for a server from a configuration file."""


class IssuerConfirmation:
    """Finds the issuers that servers name, and stores those that an admin confirms."""

    def __init__(
        self,
        flow: SignInFlow,
        registry: Registry,
        storage: AuthStorage,
    ) -> None:
        self._flow = flow
        self._registry = registry
        self._storage = storage

    async def unconfirmed(self, server: RegistryServer) -> list[ClientIssuer]:
        """Return the issuer that the server names for each choice whose secret has no confirmed issuer."""
        choices = [choice for choice in server.choices if await self._needs_confirmation(server, choice)]
        return await asyncio.gather(
            *(
                self._look_up(_preview_key(server), choice_target(server, choice), choice)
                for choice in choices
            )
        )

    async def find_offered(self, server: RegistryServer, refusal: SignInNeeded) -> ClientIssuer:
        """Return the issuer to which a server refers those who may not use it without credentials."""
        choice = next((each for each in server.choices if each.kind is AuthKind.OAUTH), None)
        target = (
            SignInTarget(server.url, private_addresses=server.private_addresses)
            if choice is None
            else choice_target(server, choice)
        )
        challenge = parse_challenge(refusal.status, refusal.challenge)
        return await self._look_up(_preview_key(server), target, choice, challenge)

    async def confirm(self, server_id: str, choice_id: str, issuer: str) -> RegistryServer:
        """Store the issuer of a choice, if the server still names it.

        Raises NotFound, Invalid if there is nothing to confirm or the server names another issuer, AuthError
        or AuthUnavailable if discovery fails.
        """
        server = await self._registry.get_server(server_id)
        choice = server.find_choice(choice_id)
        if choice is None:
            raise _invalid("choice_id", "is not a choice of this server", "reload the server's page")
        if choice.issuer is not None and same_issuer(choice.issuer, issuer):
            # Confirmed already, for example by a second click.
            return server
        if not await self._needs_confirmation(server, choice):
            raise _invalid(
                "choice_id",
                "needs no confirmation: no client secret is stored, or its issuer is known",
                "change the issuer in the server's form",
            )
        # Discover the issuer again: the server may name another one than the admin saw on the page.
        current_issuer = await self._find_issuer(_preview_key(server), choice_target(server, choice))
        if not same_issuer(current_issuer, issuer):
            raise _invalid(
                "issuer",
                f"is {issuer}, but the server now names {current_issuer}; nothing was stored",
                "confirm the new issuer only if you registered the client there",
            )
        return await self._registry.set_issuer(server, choice, current_issuer)

    async def find_config_issuer(self, server: Server, principal: Principal) -> ClientIssuer | None:
        """Return the issuer of the client in a configuration file, or None if its entry has no client id."""
        spec, oauth = server.transport, server.oauth or OAuthSpec()
        if not isinstance(spec, HttpSpec) or not server.enabled or oauth.client_id is None:
            return None
        if spec.auth_provider_id is not None or has_authorization_header(spec):
            return None
        target = SignInTarget(spec.url, oauth, server.private_addresses)
        if (issuer := await confirmed_issuer(self._storage, target)) is not None:
            return ClientIssuer(issuer, confirmed=True)
        return await self._look_up(config_grant_key(server, principal), target) if target.has_secret else None

    async def _needs_confirmation(self, server: RegistryServer, choice: AuthChoice) -> bool:
        target = choice_target(server, choice)
        if choice.kind is not AuthKind.OAUTH or target.oauth.client_id is None or not target.has_secret:
            return False
        return await confirmed_issuer(self._storage, target) is None

    async def _look_up(
        self,
        key: str,
        target: SignInTarget,
        choice: AuthChoice | None = None,
        challenge: Challenge | None = None,
    ) -> ClientIssuer:
        try:
            return ClientIssuer(await self._find_issuer(key, target, challenge), choice=choice)
        except (AuthError, AuthUnavailable) as error:
            return ClientIssuer(error=error, choice=choice)

    async def _find_issuer(self, key: str, target: SignInTarget, challenge: Challenge | None = None) -> str:
        try:
            async with asyncio.timeout(_DISCOVERY_SECONDS):
                issuer = await self._flow.find_issuer(key, target, challenge)
        except TimeoutError:
            raise AuthUnavailable(
                f"the authorization server was not found within {_DISCOVERY_SECONDS:g} s",
                hint="try again later",
            ) from None
        # Some letters of other alphabets look like Latin ones, so an admin could not compare the addresses.
        fault = issuer_fault(issuer) or (None if issuer.isascii() else "contains characters outside ASCII")
        if fault is not None:
            raise DiscoveryFailed(
                f"the issuer that the server reports {fault}",
                hint="if you registered a client there, enter the issuer in the server's form",
            )
        return issuer


def _preview_key(server: RegistryServer) -> str:
    """Return a storage key that never has a grant, so that no earlier sign-in influences discovery."""
    return f"registry:{server.id}"


def _invalid(path: str, message: str, hint: str) -> Invalid:
    return Invalid([Problem(message, path=path, hint=hint)])
