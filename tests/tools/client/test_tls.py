from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from triolog.tools.client.tls import TlsConfig

from tests.support.certificates import make_certificates


def test_a_key_with_a_passphrase_is_an_error_and_no_question_at_the_terminal(tmp_path: Path) -> None:
    path = Path(make_certificates(tmp_path).client)
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    form = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    encrypted = tmp_path / "key.pem"
    encrypted.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    with pytest.raises(ssl.SSLError, match="has a passphrase"):
        TlsConfig(certificate_file=str(path), key_file=str(encrypted)).context()
