from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

from toolyard.auth.errors import RegistrationFailed
from toolyard.auth.token_endpoint import build_client_assertion


def pem(key: Any) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    head, body, signature = token.split(".")
    head_bytes, body_bytes, token_parts = (
        base64.urlsafe_b64decode(part + "==") for part in (head, body, signature)
    )
    return json.loads(head_bytes), json.loads(body_bytes), f"{head}.{body}".encode(), token_parts


def test_an_ec_key_signs_es256() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    for _ in range(20):
        head, claims, data, signature = parts(
            build_client_assertion(pem(key), "me", "https://as.example", 1000.5)
        )
        assert head == {"alg": "ES256", "typ": "JWT"}
        assert len(signature) == 64
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        key.public_key().verify(utils.encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))
        assert claims.pop("jti")
        expected = {"iss": "me", "sub": "me", "aud": "https://as.example", "iat": 1000, "exp": 1300}
        assert claims == expected


def test_an_rsa_key_signs_rs256() -> None:
    key = rsa.generate_private_key(65537, 2048)
    head, _, data, signature = parts(build_client_assertion(pem(key), "me", "https://as.example", 0))
    assert head["alg"] == "RS256"
    key.public_key().verify(signature, data, padding.PKCS1v15(), hashes.SHA256())


def test_every_assertion_is_another_one() -> None:
    key = pem(ec.generate_private_key(ec.SECP256R1()))
    assert len({parts(build_client_assertion(key, "me", "a", 0))[1]["jti"] for _ in range(10)}) == 10


@pytest.mark.parametrize(
    "key",
    [
        "",
        "nonsense",
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(ed25519.Ed25519PrivateKey.generate()),
        ec.generate_private_key(ec.SECP256R1())
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
        .decode(),
    ],
    ids=["empty", "nonsense", "another curve", "another kind", "with a password"],
)
def test_other_keys_are_refused_with_a_hint(key: str) -> None:
    with pytest.raises(RegistrationFailed) as exc_info:
        build_client_assertion(key, "me", "a", 0)
    assert "P-256" in (exc_info.value.hint or "")
