"""SCRAM from the server's side: published exchanges, an independent client, and what is refused."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode, SaslAuthenticationError
from triolog.protocol.kafka.scram import DEFAULT_SHAPE, MIN_ITERATIONS, ScramCredential, ScramMechanism, ScramServer, decoy

from tests.support.kafka_login import ScramClient

MECHANISMS = list(ScramMechanism)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)

PUBLISHED = {
    ScramMechanism.SCRAM_SHA_256: (
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
    ScramMechanism.SCRAM_SHA_512: (
        "02431b08-2f89-4bad-a4e6-80c0564ec865",
        "Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=",
        "Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A==",
        "BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw==",
    ),
}
"""(server nonce, salt, proof, signature): RFC 7677 section 3, and the same for SHA-512 as implementations publish it."""


def credential(mechanism: ScramMechanism, password: str, *, salt: bytes = b"salty", iterations: int = 1) -> ScramCredential:
    return ScramCredential.from_password(mechanism, iterations, salt, password)


def client_of(mechanism: ScramMechanism, user: str = "user", password: str = "pencil", **fields: Any) -> ScramClient:
    return ScramClient(mechanism.hash_name, user, password, **fields)


def logged_in(server: ScramServer, client: ScramClient, known: ScramCredential) -> bytes:
    assert server.receive_first(client.first()) == client.user
    return server.receive_final(client.final(server.challenge(known.iterations, known.salt)), known)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_published_exchange_is_reproduced(mechanism: ScramMechanism) -> None:
    nonce, salt, proof, signature = PUBLISHED[mechanism]
    server = ScramServer(mechanism, nonce)
    assert server.receive_first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == "user"
    known = credential(mechanism, "pencil", salt=base64.b64decode(salt), iterations=4096)
    both = f"rOprNGfwEbeRWgbNEkqO{nonce}"
    assert server.challenge(known.iterations, known.salt) == f"r={both},s={salt},i=4096".encode()
    assert server.receive_final(f"c=biws,r={both},p={proof}".encode(), known) == f"v={signature}".encode()


@given(st.sampled_from(MECHANISMS), names, names, st.binary(min_size=1, max_size=40), st.integers(1, 3))
def test_whoever_knows_the_password_logs_in_and_learns_that_the_server_does(
    mechanism: ScramMechanism, user: str, password: str, salt: bytes, iterations: int
) -> None:
    client = client_of(mechanism, user, password)
    known = credential(mechanism, password, salt=salt, iterations=iterations)
    assert client.check(logged_in(ScramServer(mechanism, "server-nonce"), client, known))


@given(st.sampled_from(MECHANISMS), names, names)
def test_another_password_does_not_log_in(mechanism: ScramMechanism, right: str, wrong: str) -> None:
    server = ScramServer(mechanism, "server-nonce")
    client = client_of(mechanism, password=wrong)
    if right == wrong:
        logged_in(server, client, credential(mechanism, right))
    else:
        with pytest.raises(SaslAuthenticationError, match="invalid credentials") as caught:
            logged_in(server, client, credential(mechanism, right))
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


@given(st.sampled_from(MECHANISMS), st.data())
def test_a_changed_byte_of_the_last_message_does_not_log_in(mechanism: ScramMechanism, data: st.DataObject) -> None:
    server, client = ScramServer(mechanism, "server-nonce"), client_of(mechanism)
    server.receive_first(client.first())
    known = credential(mechanism, "pencil")
    final = bytearray(client.final(server.challenge(known.iterations, known.salt)))
    at = data.draw(st.integers(0, len(final) - 1))
    final[at] ^= data.draw(st.integers(1, 255))
    try:
        client_may_go_on = client.check(server.receive_final(final, known))
    except SaslAuthenticationError:
        return
    proof = final.partition(b",p=")[2]
    assert client_may_go_on, "other bits that base64 ignores"
    assert base64.b64decode(proof) == base64.b64decode(client.final(server._server_first.encode()).partition(b",p=")[2])


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_garbage_is_refused_as_such(data: bytes) -> None:
    server = ScramServer(ScramMechanism.SCRAM_SHA_256, "server-nonce")
    try:
        server.receive_first(data)
    except SaslAuthenticationError:
        server.receive_first(client_of(server.mechanism).first())
    server.challenge(1, b"salty")
    with pytest.raises(SaslAuthenticationError):
        server.receive_final(data, credential(server.mechanism, "pencil"))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"p=tls-unique,,n=user,r=nonce", "channel binding"),
        (b"n,a=other,n=user,r=nonce", "another user"),
        (b"n,,n=us=er,r=nonce", "equals sign"),
        (b"n,,n=,r=nonce", "cannot read"),
        (b"n,,n=user,r=", "cannot read"),
        (b"n,,m=extension,n=user,r=nonce", "cannot read"),
        (b"n,,n=token,r=nonce,tokenauth=true", "cannot read"),
        (b"n,,n=\xff,r=nonce", "not UTF-8"),
    ],
)
def test_a_first_message_that_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(SaslAuthenticationError, match=reason):
        ScramServer(ScramMechanism.SCRAM_SHA_256, "server-nonce").receive_first(message)


@pytest.mark.parametrize(("header", "user"), [("n,,", "user"), ("y,,", "user"), ("n,a=user,", "user"), ("n,a=a=2Cb,", "a,b")])
def test_headers_that_are_taken(header: str, user: str) -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    client = client_of(mechanism, user, header=header)
    assert client.check(logged_in(ScramServer(mechanism, "server-nonce"), client, credential(mechanism, "pencil")))


@pytest.mark.parametrize(
    ("changed", "reason"), [((b"r=", b"r=x"), "another nonce"), ((b"c=biws", b"c=eSws"), "another header")]
)
def test_a_last_message_of_another_exchange_is_refused(changed: tuple[bytes, bytes], reason: str) -> None:
    server, client = ScramServer(ScramMechanism.SCRAM_SHA_256, "server-nonce"), client_of(ScramMechanism.SCRAM_SHA_256)
    server.receive_first(client.first())
    final = client.final(server.challenge(1, b"salty"))
    with pytest.raises(SaslAuthenticationError, match=reason):
        server.receive_final(final.replace(*changed), credential(server.mechanism, "pencil"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_who_does_not_exist_is_asked_as_one_who_does_and_never_logs_in(mechanism: ScramMechanism) -> None:
    shapes = {DEFAULT_SHAPE: 1}
    asked = {decoy(mechanism, b"secret", "nobody", shapes).salt for _ in range(3)}
    assert len(asked) == 1
    assert decoy(mechanism, b"secret", "other", shapes).salt not in asked
    nobody = decoy(mechanism, b"secret", "nobody", shapes)
    with pytest.raises(SaslAuthenticationError):
        logged_in(ScramServer(mechanism, "nonce"), client_of(mechanism, "nobody"), nobody)


def test_decoys_have_the_shapes_of_users_about_as_often() -> None:
    """An outsider who sees a rare shape, or a common one, learns nothing from it. Within a factor of two by its weights."""
    users = {(4096, 20): 900, (8192, 20): 90, (16384, 32): 10}
    found = Counter(
        (each.iterations, len(each.salt))
        for number in range(4000)
        for each in [decoy(ScramMechanism.SCRAM_SHA_256, b"secret", f"nobody-{number}", users)]
    )
    for shape, count in users.items():
        assert count / 1000 / 2.2 <= found[shape] / 4000 <= count / 1000 * 2.2, shape


def test_a_decoy_changes_its_shape_only_when_a_number_of_users_passes_a_power_of_two() -> None:
    few, same, more = ({(4096, 20): 900, (16384, 32): count} for count in (9, 15, 16))
    names = [f"nobody-{number}" for number in range(500)]
    before, after, later = (
        [decoy(ScramMechanism.SCRAM_SHA_256, b"secret", name, shapes).iterations for name in names]
        for shapes in (few, same, more)
    )
    assert before == after
    assert {pair for pair in zip(after, later, strict=True) if pair[0] != pair[1]} == {(4096, 16384)}


@given(st.sampled_from(MECHANISMS), names, st.binary(min_size=1, max_size=30))
def test_a_credential_comes_back_from_its_text(mechanism: ScramMechanism, password: str, salt: bytes) -> None:
    known = credential(mechanism, password, salt=salt, iterations=MIN_ITERATIONS)
    assert ScramCredential.parse(mechanism, known.as_text()) == known
    assert "stored_key" not in repr(known)


@given(st.text(max_size=60) | st.just("salt=c2FsdA==,stored_key=,server_key=,iterations=4096"))
def test_text_that_is_no_credential_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        ScramCredential.parse(ScramMechanism.SCRAM_SHA_256, text)


def test_too_few_iterations_are_no_credential() -> None:
    text = credential(ScramMechanism.SCRAM_SHA_256, "pencil", iterations=MIN_ITERATIONS - 1).as_text()
    with pytest.raises(ValueError, match="4095, at least 4096"):
        ScramCredential.parse(ScramMechanism.SCRAM_SHA_256, text)
