"""The operator's identity provider, asked over HTTP: what it says of itself, its keys, tokens, claims."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from toolyard.accounts.errors import ProviderFailed, SignInRefused
from toolyard.accounts.oidc.id_token import read_keys
from toolyard.auth.address_policy import Reach
from toolyard.auth.metadata import text, texts
from toolyard.auth.oauth_http import Answer, Asker, Document, one_line
from toolyard.auth.single_flight import Flight
from toolyard.config.value_checks import url_fault
from toolyard.errors import ToolyardError
from toolyard.net import Net
from toolyard.types.clock import is_recent

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

__all__ = ["Metadata", "Provider", "Tokens"]

log = logging.getLogger("toolyard.people")

T = TypeVar("T")

_WELL_KNOWN = "/.well-known/openid-configuration"
_FRESH = 3600.0
"""Seconds for which what the provider says of itself is believed."""
_KEYS_AGAIN = 10.0
"""Seconds between two looks at its keys, whatever tokens come in."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """OpenID Connect Discovery, as far as we use it. Its addresses were checked."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    algorithms: tuple[str, ...] | None
    token_auth_methods: tuple[str, ...] | None
    iss_promised: bool


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the token endpoint gave. The access token is used for one question and then forgotten."""

    id_token: str
    access_token: str | None


class Provider:
    """One identity provider and our client there. Every failure is a ProviderFailed, except a code that it
    does not take, which is a SignInRefused."""

    def __init__(
        self, issuer: str, client_id: str, client_secret: str | None, net: Net, clock: Callable[[], float]
    ) -> None:
        self.client_id = client_id
        self._issuer = issuer
        self._secret = client_secret
        # The operator chose this address, and whatever it names: a provider at home is as good as any.
        self._asker = Asker(net, Reach(issuer, private_addresses=True))
        self._clock = clock
        self._metadata: tuple[Metadata, float] | None = None
        self._keys: tuple[KeySet, float] | None = None
        # Whoever comes while it is asked shares the answer. One that never comes is waited for once, not by
        # one after the other.
        self._asking: Flight[Metadata] = Flight()
        self._asking_keys: Flight[KeySet] = Flight()

    async def metadata(self) -> Metadata:
        """What it says of itself, from memory where that is fresh."""
        if self._metadata is None or not is_recent(self._metadata[1], self._clock(), _FRESH):
            return await self._asking.join(self._ask)
        return self._metadata[0]

    async def keys(self, *, again: bool = False) -> KeySet:
        """Its keys; ``again`` asks anew, unless that was done a moment ago."""
        metadata = await self.metadata()
        fresh = _KEYS_AGAIN if again else _FRESH
        if self._keys is None or not is_recent(self._keys[1], self._clock(), fresh):
            return await self._asking_keys.join(lambda: self._ask_keys(metadata))
        return self._keys[0]

    async def _ask(self) -> Metadata:
        what = "the identity provider"
        found = await _asked(self._asker.get(self._issuer.rstrip("/") + _WELL_KNOWN, what))
        self._metadata = self._read(found), self._clock()
        return self._metadata[0]

    async def _ask_keys(self, metadata: Metadata) -> KeySet:
        what = "the identity provider's key set"
        answer = await _asked(self._asker.get(metadata.jwks_uri, what))
        try:
            self._keys = read_keys(_document(answer, what)), self._clock()
        except ValueError:
            raise ProviderFailed(f"{what} cannot be read") from None
        return self._keys[0]

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> Tokens:
        """Tokens for the code with which a person came back."""
        metadata = await self.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = self._prove(form, metadata)
        body, kind = urlencode(form).encode(), "application/x-www-form-urlencoded"
        what = "the identity provider's token endpoint"
        answer = await _asked(self._asker.post(metadata.token_endpoint, what, body, kind, headers))
        if answer.status != 200:
            raise self._refusal(answer)
        document = _document(answer, what)
        id_token = text(document, "id_token")
        if id_token is None:
            raise ProviderFailed(
                f"{what} gave no ID token", hint="the client must be allowed the scope openid"
            )
        return Tokens(id_token, text(document, "access_token"))

    async def userinfo(self, tokens: Tokens, sub: str) -> Mapping[str, Any]:
        """More claims about the person whom the ID token names; none where there is no such endpoint."""
        endpoint = (await self.metadata()).userinfo_endpoint
        if endpoint is None or tokens.access_token is None:
            return {}
        what = "the identity provider's userinfo endpoint"
        headers = {"Authorization": f"Bearer {tokens.access_token}"}
        claims = _document(await _asked(self._asker.get(endpoint, what, headers=headers)), what)
        # OpenID Connect Core, 5.3.2: an answer about somebody else must not be used.
        if claims.get("sub") != sub:
            raise SignInRefused(f"{what} speaks of somebody else than the ID token", hint="begin again")
        return claims

    def _read(self, answer: Answer) -> Metadata:
        what = "the identity provider"
        document = _document(answer, what)
        issuer = text(document, "issuer") or ""
        if issuer.rstrip("/") != self._issuer.rstrip("/"):
            raise ProviderFailed(
                f"{what} at {self._issuer} calls itself '{one_line(issuer)}'",
                hint="set oidc_issuer to the name that it has for itself",
            )
        return Metadata(
            issuer=issuer,
            authorization_endpoint=self._endpoint(document, "authorization_endpoint"),
            token_endpoint=self._endpoint(document, "token_endpoint"),
            jwks_uri=self._endpoint(document, "jwks_uri"),
            userinfo_endpoint=self._endpoint(document, "userinfo_endpoint")
            if "userinfo_endpoint" in document
            else None,
            algorithms=texts(document, "id_token_signing_alg_values_supported"),
            token_auth_methods=texts(document, "token_endpoint_auth_methods_supported"),
            iss_promised=document.get("authorization_response_iss_parameter_supported") is True,
        )

    def _endpoint(self, document: Document, name: str) -> str:
        address = text(document, name) or ""
        encrypted = urlsplit(self._issuer).scheme == "https"
        if url_fault(address) is not None or (encrypted and urlsplit(address).scheme != "https"):
            raise ProviderFailed(f"the identity provider names no usable {name}")
        return address

    def _prove(self, form: dict[str, str], metadata: Metadata) -> dict[str, str]:
        """Say who we are: in the header, in the form, or by name alone where we have no secret."""
        methods = metadata.token_auth_methods
        if self._secret is None:
            form["client_id"] = self.client_id
            return {}
        if methods is not None and "client_secret_basic" not in methods and "client_secret_post" in methods:
            form |= {"client_id": self.client_id, "client_secret": self._secret}
            return {}
        pair = f"{quote(self.client_id, safe='')}:{quote(self._secret, safe='')}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}

    def _refusal(self, answer: Answer) -> ToolyardError:
        document = answer.document or {}
        code, words = one_line(document.get("error"), width=60), one_line(document.get("error_description"))
        log.warning("the identity provider's token endpoint answered %s %s %s", answer.status, code, words)
        if code == "invalid_grant":
            return SignInRefused("the identity provider no longer takes this sign-in", hint="begin again")
        if code in ("invalid_client", "unauthorized_client") or answer.status == 401:
            return ProviderFailed(
                "the identity provider does not know us by our client id and secret",
                hint="check oidc_client_id and oidc_client_secret",
            )
        said = f": {code}" if code else ""
        return ProviderFailed(
            f"the identity provider's token endpoint answered {answer.status}{said}", hint="try again later"
        )


async def _asked(question: Coroutine[Any, Any, T]) -> T:
    try:
        return await question
    except ToolyardError as error:
        raise ProviderFailed(error.cause, hint=error.hint) from error


def _document(answer: Answer, what: str) -> Document:
    if answer.status != 200 or answer.document is None:
        raise ProviderFailed(
            f"{what} answered {answer.status}" + (", but no JSON" if answer.status == 200 else ""),
            hint="try again later, or check oidc_issuer",
        )
    return answer.document
