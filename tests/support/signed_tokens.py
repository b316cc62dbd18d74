"""Signed tokens and key sets as an identity provider makes them, and those of an attacker. Needs the extra `oauth`."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import attrs
import pytest

from tests.support.tokens import CLAIMS, base64url, part

jwt = pytest.importorskip("jwt")

from cryptography.hazmat.primitives import serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: E402
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm  # noqa: E402


@attrs.frozen
class Key:
    key_id: str
    private: Any
    algorithm: str

    def jwk(self, **changes: Any) -> dict[str, Any]:
        """The public key, as an element of a key set; None removes a field."""
        of = RSAAlgorithm if self.algorithm[:2] in ("RS", "PS") else OKPAlgorithm if self.algorithm == "EdDSA" else ECAlgorithm
        told = {**of.to_jwk(self.private.public_key(), as_dict=True), "kid": self.key_id, "use": "sig", **changes}
        return {name: value for name, value in told.items() if value is not None}

    def token(self, claims: dict[str, Any] = CLAIMS, **header: Any) -> str:
        """A signed token; a header None is not there."""
        told = {name: value for name, value in {"kid": self.key_id, **header}.items() if value is not None}
        return str(jwt.encode(claims, self.private, self.algorithm, told))

    def signed_by_its_public_key(self) -> str:
        """The attack of RFC 8725, 2.1: HMAC with a secret that everybody knows."""
        pem = self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        signed = f"{part({'alg': 'HS256', 'kid': self.key_id})}.{part(CLAIMS)}"
        return f"{signed}.{base64url(hmac.digest(pem, signed.encode(), hashlib.sha256))}"


def ec_key(key_id: str = "first") -> Key:
    return Key(key_id, ec.generate_private_key(ec.SECP256R1()), "ES256")


def all_kinds() -> list[Key]:
    """A key of each kind that is accepted."""
    return [
        Key("rsa", rsa.generate_private_key(65537, 2048), "RS256"),
        Key("pss", rsa.generate_private_key(65537, 2048), "PS512"),
        ec_key("p256"),
        Key("p384", ec.generate_private_key(ec.SECP384R1()), "ES384"),
        Key("p521", ec.generate_private_key(ec.SECP521R1()), "ES512"),
        Key("ed25519", ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ]


def key_set(*keys: Key | dict[str, Any]) -> bytes:
    return json.dumps({"keys": [each.jwk() if isinstance(each, Key) else each for each in keys]}).encode()
