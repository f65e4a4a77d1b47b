"""HTTP client for the operator's identity provider: metadata, keys, tokens and userinfo."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlencode, urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from toolyard.accounts.errors import NotAllowed, ProviderFailed, SignInRefused
from toolyard.accounts.oidc.tokens import UnknownSigningKey
from toolyard.auth.discovery import get_string, get_strings
from toolyard.auth.oauth_http import (
    AddressPolicy,
    JsonDocument,
    OAuthHttpClient,
    OAuthHttpResponse,
    basic_authorization,
    sanitize_error_text,
)
from toolyard.concurrency.tasks import SingleFlight
from toolyard.config.settings.table import Settings
from toolyard.config.value_checks import url_fault
from toolyard.errors import ToolyardError
from toolyard.net import OutboundHttp
from toolyard.types.timestamps import is_recent

__all__ = ["PROVIDER_TIMEOUT_SECONDS", "OidcProvider", "ProviderMetadata", "ProviderTokens"]

log = logging.getLogger("toolyard.people")

T = TypeVar("T")

_WELL_KNOWN_PATH = "/.well-known/openid-configuration"
PROVIDER_TIMEOUT_SECONDS = 20.0
"""Time limit of one request to the identity provider."""
_CACHE_SECONDS = 3600.0
"""Time for which the provider's metadata and keys are cached."""
_MIN_KEY_REFRESH_SECONDS = 10.0
"""Minimum interval between two requests for the keys, even if tokens with unknown keys arrive."""


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """Metadata of the provider (OpenID Connect Discovery), limited to the fields in use, with valid URLs."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    algorithms: tuple[str, ...] | None
    token_auth_methods: tuple[str, ...] | None
    sends_iss_parameter: bool

    @classmethod
    def from_document(cls, document: JsonDocument, configured_issuer: str) -> ProviderMetadata:
        """Check the provider's document, and read it. Raises ProviderFailed."""
        issuer = get_string(document, "issuer") or ""
        if issuer.rstrip("/") != configured_issuer.rstrip("/"):
            raise ProviderFailed(
                f"the identity provider at {configured_issuer} reports another issuer:"
                f" '{sanitize_error_text(issuer)}'",
                hint="set oidc_issuer to exactly that issuer, if it is correct",
            )
        is_encrypted = urlsplit(configured_issuer).scheme == "https"

        def read_endpoint(name: str) -> str:
            # Endpoints of an https issuer must not fall back to plain http; they receive codes and secrets.
            address = get_string(document, name) or ""
            if url_fault(address) is not None or (is_encrypted and urlsplit(address).scheme != "https"):
                raise ProviderFailed(f"the identity provider's metadata has no usable {name}")
            return address

        return cls(
            issuer=issuer,
            authorization_endpoint=read_endpoint("authorization_endpoint"),
            token_endpoint=read_endpoint("token_endpoint"),
            jwks_uri=read_endpoint("jwks_uri"),
            userinfo_endpoint=read_endpoint("userinfo_endpoint") if "userinfo_endpoint" in document else None,
            algorithms=get_strings(document, "id_token_signing_alg_values_supported"),
            token_auth_methods=get_strings(document, "token_endpoint_auth_methods_supported"),
            sends_iss_parameter=document.get("authorization_response_iss_parameter_supported") is True,
        )


@dataclass(frozen=True, slots=True)
class ProviderTokens:
    """Tokens from the token endpoint. The access token is used only for the userinfo request."""

    id_token: str
    access_token: str | None


class OidcProvider:
    """One identity provider, and our client registration there.

    Methods raise ProviderFailed, except for a code or userinfo that is not accepted: SignInRefused.
    """

    def __init__(
        self,
        settings: Settings,
        net: OutboundHttp,
        clock: Callable[[], float],
        *,
        timeout_seconds: float = PROVIDER_TIMEOUT_SECONDS,
    ) -> None:
        """Use the provider in the settings. Raises NotAllowed if there is none."""
        if settings.oidc_issuer is None or settings.oidc_client_id is None:
            raise NotAllowed("no identity provider is configured", hint="set oidc_issuer and oidc_client_id")
        self.client_id = settings.oidc_client_id
        self.issuer = settings.oidc_issuer
        self._client_secret = settings.oidc_client_secret
        # The operator configured this provider, so it and its endpoints may have private addresses.
        self._http_client = OAuthHttpClient(
            net, AddressPolicy(self.issuer, private_addresses=True), timeout_seconds=timeout_seconds
        )
        self._clock = clock
        self._metadata: tuple[ProviderMetadata, float] | None = None
        self._keys: tuple[KeySet, float] | None = None
        # Concurrent callers share one request. If the provider does not respond, they all fail after one
        # timeout, instead of one after the other.
        self._metadata_flight: SingleFlight[None, ProviderMetadata] = SingleFlight(
            cancel_when_abandoned=False
        )
        self._keys_flight: SingleFlight[None, KeySet] = SingleFlight(cancel_when_abandoned=False)

    async def get_metadata(self) -> ProviderMetadata:
        """Return the provider's metadata, from the cache if it is recent."""
        if self._metadata is None or not is_recent(self._metadata[1], self._clock(), _CACHE_SECONDS):
            return await self._metadata_flight.run(None, self._fetch_metadata)
        return self._metadata[0]

    async def get_keys(self, *, refresh: bool = False) -> KeySet:
        """Return the provider's keys, from the cache if they are recent.

        ``refresh`` fetches them again, unless that was done within the last ten seconds.
        """
        metadata = await self.get_metadata()
        max_age_seconds = _MIN_KEY_REFRESH_SECONDS if refresh else _CACHE_SECONDS
        if self._keys is None or not is_recent(self._keys[1], self._clock(), max_age_seconds):
            return await self._keys_flight.run(None, lambda: self._fetch_keys(metadata))
        return self._keys[0]

    async def verify_with_keys(self, verify: Callable[[KeySet], T]) -> T | None:
        """Return the result of ``verify``; None if it raises UnknownSigningKey for the newest keys, too."""
        # An unknown key may be new: fetch the key set again before the token is refused.
        for refresh in (False, True):
            keys = await self.get_keys(refresh=refresh)
            try:
                return verify(keys)
            except UnknownSigningKey:
                continue
        return None

    async def _fetch_metadata(self) -> ProviderMetadata:
        url = self.issuer.rstrip("/") + _WELL_KNOWN_PATH
        document = await self._get_document(url, "the identity provider")
        self._metadata = ProviderMetadata.from_document(document, self.issuer), self._clock()
        return self._metadata[0]

    async def _fetch_keys(self, metadata: ProviderMetadata) -> KeySet:
        label = "the identity provider's key set"
        document = cast("Any", await self._get_document(metadata.jwks_uri, label))
        try:
            self._keys = KeySet.import_key_set(document), self._clock()
        except (JoseError, KeyError, TypeError, ValueError, AttributeError):
            raise ProviderFailed(
                f"{label} is not valid", hint="try again later, or check oidc_issuer"
            ) from None
        return self._keys[0]

    async def exchange_code(self, code: str, verifier: str, redirect_uri: str) -> ProviderTokens:
        """Exchange an authorization code for tokens. Raises SignInRefused if the code is not accepted."""
        metadata = await self.get_metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = self._authenticate_client(form, metadata)
        body, content_type = urlencode(form).encode(), "application/x-www-form-urlencoded"
        label = "the identity provider's token endpoint"
        response = await _await_provider(
            self._http_client.post(metadata.token_endpoint, label, body, content_type, headers)
        )
        if response.status != 200:
            raise self._build_token_error(response)
        document = _require_document(response, label)
        id_token = get_string(document, "id_token")
        if id_token is None:
            raise ProviderFailed(
                f"{label} returned no ID token",
                hint="allow the scope openid for this client in the identity provider's settings",
            )
        return ProviderTokens(id_token, get_string(document, "access_token"))

    async def fetch_userinfo(self, tokens: ProviderTokens, sub: str) -> Mapping[str, Any]:
        """Return the claims of the userinfo endpoint; empty if the provider has none.

        Raises SignInRefused if they are about another user than ``sub``.
        """
        endpoint = (await self.get_metadata()).userinfo_endpoint
        if endpoint is None or tokens.access_token is None:
            return {}
        label = "the identity provider's userinfo endpoint"
        headers = {"Authorization": f"Bearer {tokens.access_token}"}
        claims = await self._get_document(endpoint, label, headers)
        # OpenID Connect Core, 5.3.2: a response about another user must not be used.
        if claims.get("sub") != sub:
            raise SignInRefused(f"{label} and the ID token are about different users", hint="sign in again")
        return claims

    async def _get_document(
        self, url: str, label: str, headers: Mapping[str, str] | None = None
    ) -> JsonDocument:
        response = await _await_provider(self._http_client.get(url, label, headers=headers))
        return _require_document(response, label)

    def _authenticate_client(self, form: dict[str, str], metadata: ProviderMetadata) -> dict[str, str]:
        """Add client authentication to the form, or return it as a header; only the id without a secret."""
        methods = metadata.token_auth_methods
        if self._client_secret is None:
            form["client_id"] = self.client_id
            return {}
        if methods is not None and "client_secret_basic" not in methods and "client_secret_post" in methods:
            form |= {"client_id": self.client_id, "client_secret": self._client_secret}
            return {}
        return basic_authorization(self.client_id, self._client_secret)

    def _build_token_error(self, response: OAuthHttpResponse) -> ToolyardError:
        document = response.document or {}
        code = sanitize_error_text(document.get("error"), max_characters=60)
        description = sanitize_error_text(document.get("error_description"))
        log.warning(
            "the identity provider's token endpoint answered with HTTP %s: %s %s",
            response.status,
            code,
            description,
        )
        if code == "invalid_grant":
            return SignInRefused("the identity provider no longer accepts this sign-in", hint="sign in again")
        if code in ("invalid_client", "unauthorized_client") or response.status == 401:
            return ProviderFailed(
                "the identity provider does not accept Toolyard's client id and secret",
                hint="check oidc_client_id and oidc_client_secret",
            )
        detail = f": {code}" if code else ""
        return ProviderFailed(
            f"the identity provider's token endpoint answered with HTTP {response.status}{detail}",
            hint="try again later",
        )


async def _await_provider(request: Coroutine[Any, Any, T]) -> T:
    try:
        return await request
    except ToolyardError as error:
        raise ProviderFailed(error.cause, hint=error.hint) from error


def _require_document(response: OAuthHttpResponse, label: str) -> JsonDocument:
    if response.status != 200 or response.document is None:
        fault = " but without a JSON object" if response.status == 200 else ""
        raise ProviderFailed(
            f"{label} answered with HTTP {response.status}{fault}",
            hint="try again later, or check oidc_issuer",
        )
    return response.document
