"""OAUTHBEARER's messages: what is read is what was written, and anything else fails without repeating what is secret."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import SaslAuthenticationError
from triolog.protocol.kafka.oauthbearer import BearerMessage, refusal

TOKENS: Final = st.text("-_.abcXYZ019", min_size=1)
USERS: Final = st.text(st.characters(min_codepoint=1, max_codepoint=0x7F))
KEYS: Final = st.text("abcXYZ", min_size=1, max_size=5).filter(lambda key: key != "auth")
VALUES: Final = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1)

MALFORMED: Final = {
    "nothing": b"",
    "a control-A": b"\1",
    "not UTF-8": b"n,,\1auth=Bearer \xff\1\1",
    "no header": b"auth=Bearer token\1\1",
    "channel binding": b"p=tls-unique,,\1auth=Bearer token\1\1",
    "client supports channel binding": b"y,,\1auth=Bearer token\1\1",
    "a raw equals sign in the user": b"n,a=ali=ce,\1auth=Bearer token\1\1",
    "an empty user": b"n,a=,\1auth=Bearer token\1\1",
    "no second comma": b"n,\1auth=Bearer token\1\1",
    "no end": b"n,,\1auth=Bearer token\1",
    "something after the end": b"n,,\1auth=Bearer token\1\1x",
    "no auth": b"n,,\1host=a\1\1",
    "no pairs": b"n,,\1\1",
    "an empty pair": b"n,,\1\1auth=Bearer token\1\1",
    "auth twice": b"n,,\1auth=Bearer token\1auth=Bearer other\1\1",
    "an extension twice": b"n,,\1auth=Bearer token\1a=1\1a=2\1\1",
    "an extension without a value": b"n,,\1auth=Bearer token\1a=\1\1",
    "an extension with a digit in its name": b"n,,\1auth=Bearer token\1a1=b\1\1",
    "a value that is not ASCII": "n,,\1auth=Bearer token\1a=ä\1\1".encode(),
    "another scheme": b"n,,\1auth=Basic token\1\1",
    "no scheme": b"n,,\1auth=token\1\1",
    "two tokens": b"n,,\1auth=Bearer token token\1\1",
    "a token with a plus": b"n,,\1auth=Bearer to+ken\1\1",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_message_fails_without_its_content(name: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="Invalid OAUTHBEARER client first message") as caught:
        BearerMessage.parse(MALFORMED[name])
    assert caught.value.__cause__ is None
    assert "token" not in str(caught.value)


@pytest.mark.parametrize(
    ("message", "read"),
    [
        (b"n,,\1auth=Bearer abc.def.\1\1", BearerMessage("abc.def.")),
        (
            b"n,a=al=2Ci=3Dce,\1host=h\1auth=bEaReR  abc\1port=9092\1\1",
            BearerMessage("abc", "al,i=ce", {"host": "h", "port": "9092"}),
        ),
        (b"n,,\1auth=Bearer a\1traceId=1 2\t3\1\1", BearerMessage("a", "", {"traceId": "1 2\t3"})),
    ],
)
def test_a_message_is_read_as_kafka_reads_it(message: bytes, read: BearerMessage) -> None:
    assert BearerMessage.parse(message) == read


@given(TOKENS, USERS, st.dictionaries(KEYS, VALUES, max_size=3))
def test_what_was_written_is_read_as_the_same(token: str, user: str, extensions: dict[str, str]) -> None:
    message = BearerMessage(token, user, extensions)
    assert BearerMessage.parse(message.encode()) == message


@given(st.binary(max_size=100) | st.binary(max_size=60).map(lambda data: b"n,,\1auth=Bearer " + data + b"\1\1"))
def test_any_bytes_are_a_message_or_an_authentication_error(data: bytes) -> None:
    try:
        message = BearerMessage.parse(data)
    except SaslAuthenticationError:
        return
    assert BearerMessage.parse(message.encode()) == message


@pytest.mark.parametrize(
    "message",
    [
        BearerMessage("to ken"),
        BearerMessage(""),
        BearerMessage("t", "", {"auth": "Bearer u"}),
        BearerMessage("t", "", {"a": "\1"}),
    ],
)
def test_a_client_does_not_send_what_no_server_would_read(message: BearerMessage) -> None:
    with pytest.raises(SaslAuthenticationError):
        message.encode()


def test_no_token_is_in_a_repr() -> None:
    assert "secret" not in repr(BearerMessage("secret", "alice", {"key": "secret"}))


def test_a_refusal_is_json_that_says_which_scope_is_missing() -> None:
    assert refusal() == '{"status":"invalid_token"}'
    assert json.loads(refusal(("read", "write"))) == {"status": "insufficient_scope", "scope": "read write"}
