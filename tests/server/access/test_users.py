"""The file of users that a person writes."""

from __future__ import annotations

import pytest
from triolog.protocol.errors import InvalidConfigError
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism
from triolog.server.access.users import decode_users

CREDENTIAL = ScramCredential.from_password(ScramMechanism.SCRAM_SHA_256, 4096, b"salt", "pencil")


def test_users_have_a_password_or_what_scram_keeps_of_one() -> None:
    text = f'[alice]\npassword = "secret"\n["b.o.b"]\n"scram-sha-256" = "{CREDENTIAL.as_text()}"\n'
    users = decode_users("users.toml", text.encode())
    assert users["alice"].password == "secret"
    assert users["b.o.b"].password is None
    assert users["b.o.b"].credentials == {ScramMechanism.SCRAM_SHA_256: CREDENTIAL}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[alice\npassword = "secret"', "users.toml is not TOML"),
        ("alice = " + "[" * 5000, "users.toml is not TOML"),
        ('alice = "secret"', r"users.toml \[alice\]: a user is a table"),
        ("[alice]\n", r"users.toml \[alice\]: a user is a table"),
        ("[alice]\npassword = 7\n", "password is not a text"),
        ('[alice]\npassword = ""\n', "password is not a text"),
        ('[alice]\npasword = "secret"\n', "unknown key 'pasword'"),
        ('[alice]\nscram-sha-256 = "secret"\n', "scram-sha-256: a SCRAM credential is"),
        (
            '[alice]\nscram-sha-256 = "salt=a,stored_key=b,server_key=c,iterations=secret"\n',
            "scram-sha-256: iterations is no number",
        ),
    ],
)
def test_what_is_wrong_is_said_without_a_secret(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason) as caught:
        decode_users("users.toml", text.encode())
    assert "secret" not in str(caught.value)
