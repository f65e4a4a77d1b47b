"""Parse the OAuth options of a server entry."""

from __future__ import annotations

from toolyard.config.entries.checked_object import CheckedObject
from toolyard.types.server import OAuthSpec

__all__ = ["read_oauth"]


def read_oauth(entry: CheckedObject) -> OAuthSpec | None:
    """Parse the object ``oauth`` of an entry; None if it is missing."""
    inner = entry.child_object("oauth")
    if inner is None:
        return None
    grant = inner.choice("grant", ("authorization_code", "client_credentials"))
    spec = OAuthSpec(
        client_id=inner.text("clientId"),
        client_secret=inner.text("clientSecret"),
        scopes=_read_scopes(inner),
        resource=inner.text("resource"),
        callback_port=inner.port("callbackPort") or 0,
        legacy_discovery=inner.flag("legacyDiscovery") or False,
        grant="client_credentials" if grant == "client_credentials" else "authorization_code",
        private_key_file=inner.text("privateKeyFile"),
        issuer=inner.text("issuer"),
        issuer_redirect=inner.flag("issuerRedirect") or False,
    )
    inner.report_unknown_keys()
    _check_client_credentials(inner, spec)
    return spec


def _read_scopes(inner: CheckedObject) -> tuple[str, ...]:
    """Return the scopes from a list or, in the format of other clients, from a string with spaces."""
    value = inner.get("scopes")
    if isinstance(value, str) and not inner.strict:
        return tuple(value.split())
    return inner.texts("scopes") or ()


def _check_client_credentials(inner: CheckedObject, spec: OAuthSpec) -> None:
    proof = spec.client_secret or spec.private_key_file
    if spec.grant == "client_credentials" and not proof:
        inner.report.problem(
            inner.path,
            "the grant client_credentials needs 'clientSecret' or 'privateKeyFile', found neither",
        )
    elif proof and not spec.client_id:
        inner.report.problem(inner.path, "expected 'clientId' beside the secret or key, found none")
