"""The operator's identity provider, asked over HTTP: what it says of itself, its keys, tokens, claims."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from toolyard.accounts.errors import ProviderFailed, SignInRefused
from toolyard.accounts.oidc.id_token import parse_key_set
from toolyard.auth.address_policy import AddressPolicy
from toolyard.auth.metadata import get_string, get_strings
from toolyard.auth.oauth_http import JsonDocument, OAuthHttpClient, OAuthHttpResponse, sanitize_error_text
from toolyard.auth.single_flight import SingleFlightTask
from toolyard.config.value_checks import url_fault
from toolyard.errors import ToolyardError
from toolyard.net import OutboundHttp
from toolyard.types.clock import is_recent

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

__all__ = ["OidcProvider", "ProviderMetadata", "ProviderTokens"]

log = logging.getLogger("toolyard.people")

T = TypeVar("T")

_WELL_KNOWN_PATH = "/.well-known/openid-configuration"
_CACHE_SECONDS = 3600.0
"""Seconds for which what the provider says of itself is believed."""
_MIN_KEY_REFRESH_SECONDS = 10.0
"""Seconds between two looks at its keys, whatever tokens come in."""


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """OpenID Connect Discovery, as far as we use it. Its addresses were checked."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    algorithms: tuple[str, ...] | None
    token_auth_methods: tuple[str, ...] | None
    sends_iss_parameter: bool


@dataclass(frozen=True, slots=True)
class ProviderTokens:
    """What the token endpoint gave. The access token is used for one question and then forgotten."""

    id_token: str
    access_token: str | None


class OidcProvider:
    """One identity provider and our client there. Every failure is a ProviderFailed, except a code that it
    does not take, which is a SignInRefused."""

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str | None,
        net: OutboundHttp,
        clock: Callable[[], float],
    ) -> None:
        self.client_id = client_id
        self._issuer = issuer
        self._client_secret = client_secret
        # The operator chose this address, and whatever it names: a provider at home is as good as any.
        self._http_client = OAuthHttpClient(net, AddressPolicy(issuer, private_addresses=True))
        self._clock = clock
        self._metadata: tuple[ProviderMetadata, float] | None = None
        self._keys: tuple[KeySet, float] | None = None
        # Whoever comes while it is asked shares the answer. One that never comes is waited for once, not by
        # one after the other.
        self._metadata_flight: SingleFlightTask[ProviderMetadata] = SingleFlightTask()
        self._keys_flight: SingleFlightTask[KeySet] = SingleFlightTask()

    async def get_metadata(self) -> ProviderMetadata:
        """What it says of itself, from memory where that is fresh."""
        if self._metadata is None or not is_recent(self._metadata[1], self._clock(), _CACHE_SECONDS):
            return await self._metadata_flight.run(self._fetch_metadata)
        return self._metadata[0]

    async def get_keys(self, *, refresh: bool = False) -> KeySet:
        """Its keys; ``again`` asks anew, unless that was done a moment ago."""
        metadata = await self.get_metadata()
        fresh = _MIN_KEY_REFRESH_SECONDS if refresh else _CACHE_SECONDS
        if self._keys is None or not is_recent(self._keys[1], self._clock(), fresh):
            return await self._keys_flight.run(lambda: self._fetch_keys(metadata))
        return self._keys[0]

    async def _fetch_metadata(self) -> ProviderMetadata:
        what = "the identity provider"
        found = await _await_provider(
            self._http_client.get(self._issuer.rstrip("/") + _WELL_KNOWN_PATH, what)
        )
        self._metadata = self._parse_metadata(found), self._clock()
        return self._metadata[0]

    async def _fetch_keys(self, metadata: ProviderMetadata) -> KeySet:
        what = "the identity provider's key set"
        answer = await _await_provider(self._http_client.get(metadata.jwks_uri, what))
        try:
            self._keys = parse_key_set(_require_document(answer, what)), self._clock()
        except ValueError:
            raise ProviderFailed(f"{what} cannot be read") from None
        return self._keys[0]

    async def exchange_code(self, code: str, verifier: str, redirect_uri: str) -> ProviderTokens:
        """Tokens for the code with which a person came back."""
        metadata = await self.get_metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = self._authenticate_client(form, metadata)
        body, kind = urlencode(form).encode(), "application/x-www-form-urlencoded"
        what = "the identity provider's token endpoint"
        answer = await _await_provider(
            self._http_client.post(metadata.token_endpoint, what, body, kind, headers)
        )
        if answer.status != 200:
            raise self._build_token_error(answer)
        document = _require_document(answer, what)
        id_token = get_string(document, "id_token")
        if id_token is None:
            raise ProviderFailed(
                f"{what} gave no ID token", hint="the client must be allowed the scope openid"
            )
        return ProviderTokens(id_token, get_string(document, "access_token"))

    async def fetch_userinfo(self, tokens: ProviderTokens, sub: str) -> Mapping[str, Any]:
        """More claims about the person whom the ID token names; none where there is no such endpoint."""
        endpoint = (await self.get_metadata()).userinfo_endpoint
        if endpoint is None or tokens.access_token is None:
            return {}
        what = "the identity provider's userinfo endpoint"
        headers = {"Authorization": f"Bearer {tokens.access_token}"}
        claims = _require_document(
            await _await_provider(self._http_client.get(endpoint, what, headers=headers)), what
        )
        # OpenID Connect Core, 5.3.2: an answer about somebody else must not be used.
        if claims.get("sub") != sub:
            raise SignInRefused(f"{what} speaks of somebody else than the ID token", hint="begin again")
        return claims

    def _parse_metadata(self, response: OAuthHttpResponse) -> ProviderMetadata:
        what = "the identity provider"
        document = _require_document(response, what)
        issuer = get_string(document, "issuer") or ""
        if issuer.rstrip("/") != self._issuer.rstrip("/"):
            raise ProviderFailed(
                f"{what} at {self._issuer} calls itself '{sanitize_error_text(issuer)}'",
                hint="set oidc_issuer to the name that it has for itself",
            )
        return ProviderMetadata(
            issuer=issuer,
            authorization_endpoint=self._read_endpoint(document, "authorization_endpoint"),
            token_endpoint=self._read_endpoint(document, "token_endpoint"),
            jwks_uri=self._read_endpoint(document, "jwks_uri"),
            userinfo_endpoint=self._read_endpoint(document, "userinfo_endpoint")
            if "userinfo_endpoint" in document
            else None,
            algorithms=get_strings(document, "id_token_signing_alg_values_supported"),
            token_auth_methods=get_strings(document, "token_endpoint_auth_methods_supported"),
            sends_iss_parameter=document.get("authorization_response_iss_parameter_supported") is True,
        )

    def _read_endpoint(self, document: JsonDocument, name: str) -> str:
        address = get_string(document, name) or ""
        encrypted = urlsplit(self._issuer).scheme == "https"
        if url_fault(address) is not None or (encrypted and urlsplit(address).scheme != "https"):
            raise ProviderFailed(f"the identity provider names no usable {name}")
        return address

    def _authenticate_client(self, form: dict[str, str], metadata: ProviderMetadata) -> dict[str, str]:
        """Say who we are: in the header, in the form, or by name alone where we have no secret."""
        methods = metadata.token_auth_methods
        if self._client_secret is None:
            form["client_id"] = self.client_id
            return {}
        if methods is not None and "client_secret_basic" not in methods and "client_secret_post" in methods:
            form |= {"client_id": self.client_id, "client_secret": self._client_secret}
            return {}
        pair = f"{quote(self.client_id, safe='')}:{quote(self._client_secret, safe='')}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}

    def _build_token_error(self, response: OAuthHttpResponse) -> ToolyardError:
        document = response.document or {}
        code, words = (
            sanitize_error_text(document.get("error"), max_characters=60),
            sanitize_error_text(document.get("error_description")),
        )
        log.warning("the identity provider's token endpoint answered %s %s %s", response.status, code, words)
        if code == "invalid_grant":
            return SignInRefused("the identity provider no longer takes this sign-in", hint="begin again")
        if code in ("invalid_client", "unauthorized_client") or response.status == 401:
            return ProviderFailed(
                "the identity provider does not know us by our client id and secret",
                hint="check oidc_client_id and oidc_client_secret",
            )
        said = f": {code}" if code else ""
        return ProviderFailed(
            f"the identity provider's token endpoint answered {response.status}{said}", hint="try again later"
        )


async def _await_provider(request: Coroutine[Any, Any, T]) -> T:
    try:
        return await request
    except ToolyardError as error:
        raise ProviderFailed(error.cause, hint=error.hint) from error


def _require_document(response: OAuthHttpResponse, what: str) -> JsonDocument:
    if response.status != 200 or response.document is None:
        raise ProviderFailed(
            f"{what} answered {response.status}" + (", but no JSON" if response.status == 200 else ""),
            hint="try again later, or check oidc_issuer",
        )
    return response.document
