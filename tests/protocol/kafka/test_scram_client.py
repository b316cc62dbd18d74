"""SCRAM from the client's side: the example of RFC 7677, our server, and servers that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import SaslAuthenticationError
from triolog.protocol.kafka.messages import security
from triolog.protocol.kafka.scram import MOST_ITERATIONS, ScramClient, ScramCredential, ScramMechanism, ScramServer

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()


def client(user: str = "user", password: str = "pencil") -> ScramClient:
    made = ScramClient(ScramMechanism.SCRAM_SHA_256, user, password, NONCE)
    made.first()
    return made


def test_the_example_of_the_rfc() -> None:
    scram = ScramClient(ScramMechanism.SCRAM_SHA_256, "user", "pencil", NONCE)
    assert scram.first() == f"n,,n=user,r={NONCE}".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert scram.final(SERVER_FIRST) == f"c=biws,r={NONCE}{SERVER_NONCE},p={proof}".encode()
    scram.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", ScramMechanism)
@given(user=st.text(min_size=1, max_size=20), password=st.text(min_size=1, max_size=20))
def test_our_server_and_our_client_agree(mechanism: ScramMechanism, user: str, password: str) -> None:
    server, scram = ScramServer(mechanism, "server"), ScramClient(mechanism, user, password, NONCE)
    assert server.receive_first(scram.first()) == user
    known = ScramCredential.from_password(mechanism, 4096, b"salt", password)
    scram.check(server.receive_final(scram.final(server.challenge(known.iterations, known.salt)), known))


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    scram = client()
    scram.final(SERVER_FIRST)
    for answer in (b"", b"v=", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", b"e=other-error"):
        with pytest.raises(SaslAuthenticationError, match="does not know the user's password"):
            scram.check(answer)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(),
        b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r={NONCE}x,s=!,i=4096".encode(),
        f"r={NONCE}x,s=c2FsdA==,i=0".encode(),
        f"r={NONCE}x,s=c2FsdA==,i=4095".encode(),
        f"r={NONCE}x,s=c2FsdA==,i={MOST_ITERATIONS + 1}".encode(),
        f"r={NONCE}x,s=c2FsdA==,i={'9' * 100}".encode(),
    ],
)
def test_a_challenge_that_is_none_gets_no_proof(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationError):
        client().final(message)


def test_the_password_is_not_shown() -> None:
    assert "pencil" not in repr(client())


def test_messages_of_kafkas_protocol_show_no_token_and_no_salted_password() -> None:
    upsertion = security.AlterUserScramCredentialsScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"secret"
    )
    for message in (security.SaslAuthenticateRequest(auth_bytes=b"secret"), upsertion):
        assert "secret" not in repr(message)
