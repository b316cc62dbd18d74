"""Keys that verify tokens: which are used, when they are read again, and the limits of a read. An issuer that hangs, sends too
much or sends nonsense costs logins a bounded time, and takes no keys away."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio
import trio.testing
from triolog.protocol.errors import InvalidConfigError
from triolog.server.access.tokens import CompactToken, InvalidTokenError

from tests.support.certificates import Certificates
from tests.support.signed_tokens import Key, all_kinds, ec_key, key_set
from tests.support.tokens import CLAIMS, part, unsecured

signing_keys = pytest.importorskip("triolog.server.logs.signing_keys")

REFRESH_S: Final = 3600.0
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Source:
    """A key set that changes, and counts its reads."""

    def __init__(self, *keys: Key) -> None:
        self.keys, self.reads = list(keys), 0
        self.error: Exception | None = None

    async def read(self) -> bytes:
        self.reads += 1
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return key_set(*self.keys)


def of(source: Source) -> Any:
    return signing_keys.SigningKeys("the test", source.read, REFRESH_S)


async def verify(keys: Any, text: str) -> dict[str, Any]:
    claims: dict[str, Any] = json.loads(await keys.verify(CompactToken.parse(text)))
    return claims


async def test_a_token_of_each_kind_of_key_is_verified() -> None:
    kinds = all_kinds()
    keys = of(Source(*kinds))
    for each in kinds:
        assert await verify(keys, each.token()) == CLAIMS, each.key_id
        with pytest.raises(InvalidTokenError, match="signature is wrong"):
            await verify(keys, each.token().rpartition(".")[0] + "." + "A" * 86)
    assert await verify(of(Source(kinds[0])), kinds[0].token(kid=None)) == CLAIMS


async def test_a_signature_that_proves_nothing_is_refused() -> None:
    rsa, _, first, *_ = all_kinds()
    second = ec_key("second")
    keys = of(Source(rsa, first, second))
    changed = first.token().split(".")
    for text, why in {
        unsecured(): "no key of the test verifies 'none'",
        unsecured(kid="p256"): "no key of the test verifies 'none'",
        rsa.signed_by_its_public_key(): "no key of the test verifies 'HS256'",
        first.token(kid="rsa"): "no key of the test verifies 'ES256' kid='rsa'",
        first.token(kid=None): "no key of the test verifies 'ES256' kid=''",
        first.token(kid="second"): "signature is wrong",
        f"{changed[0]}.{part({**CLAIMS, 'sub': 'root'})}.{changed[2]}": "signature is wrong",
        f"{changed[0]}.{changed[1]}.": "signature is wrong",
        f"{changed[0]}.*.{changed[2]}": "signature is wrong",
    }.items():
        with pytest.raises(InvalidTokenError, match=why):
            await keys.verify(CompactToken.parse(text))


def test_only_public_keys_for_signatures_of_a_sufficient_size_are_used() -> None:
    good = ec_key("good")
    rsa = all_kinds()[0].jwk()
    unused: list[Any] = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        good.jwk(use="enc"),
        good.jwk(alg="HS256"),
        good.jwk(crv="secp256k1"),
        good.jwk(x="AAAA"),
        good.jwk(d="AAAA"),
        good.jwk(kid=5),
        good.jwk(kty=["EC"]),
        {**rsa, "n": rsa["n"][:100]},
        {"kty": "RSA"},
        {},
        5,
        None,
    ]
    assert [each.key_id for each in signing_keys.public_keys(json.dumps({"keys": [*unused, good.jwk()]}).encode())] == ["good"]
    for data in (json.dumps({"keys": unused}).encode(), b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"keys": {}}'):
        with pytest.raises(ValueError, match="it "):
            signing_keys.public_keys(data)
    assert signing_keys.public_keys(key_set(all_kinds()[0].jwk(alg="PS256")))[0].algorithms == {"PS256"}


async def test_a_new_key_that_a_token_names_is_read_at_most_every_ten_seconds(autojump_clock: trio.testing.MockClock) -> None:
    first, second = ec_key("first"), ec_key("second")
    source = Source(first)
    keys = of(source)
    await verify(keys, first.token())
    source.keys = [first, second]
    for _ in range(50):
        with pytest.raises(InvalidTokenError):
            await verify(keys, second.token())
    assert source.reads == 1
    await trio.sleep(10)
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(verify, keys, second.token())
    assert source.reads == 2


async def test_keys_are_read_again_when_they_are_old_and_stay_while_that_fails(autojump_clock: trio.testing.MockClock) -> None:
    first, second = ec_key("first"), ec_key("second")
    source = Source(first)
    keys = of(source)
    await verify(keys, first.token())
    source.error = OSError("the issuer is away")
    await trio.sleep(REFRESH_S)
    assert await verify(keys, first.token()) == CLAIMS
    source.error, source.keys = None, [second]
    await trio.sleep(10)
    with pytest.raises(InvalidTokenError, match="no key"):
        await verify(keys, first.token())
    assert await verify(keys, second.token()) == CLAIMS
    assert source.reads == 3


# ---- URLs --------------------------------------------------------------------------------------------------------------------

Respond = Callable[[trio.abc.Stream], Awaitable[None]]


@asynccontextmanager
async def issuer(respond: Respond, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that reads a request's head and then does what the test wants; answers its address."""
    async with trio.open_nursery() as nursery:

        async def serve(socket: trio.SocketStream) -> None:
            stream: trio.abc.Stream = socket if context is None else trio.SSLStream(socket, context, server_side=True)
            try:
                received = b""
                while b"\r\n\r\n" not in received and (some := await stream.receive_some()):
                    received += some
                await respond(stream)
                await stream.aclose()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                await trio.aclose_forcefully(stream)

        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def sending(data: bytes) -> Respond:
    async def respond(stream: trio.abc.Stream) -> None:
        await stream.send_all(data)

    return respond


async def fetch(url: str) -> bytes:
    data: bytes = await signing_keys.fetch(signing_keys.check_place(url, insecure=False))
    return data


async def test_a_key_set_comes_over_http_and_https(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    body = key_set(ec_key())
    counted = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for data in (counted, chunked, HEAD + b"\r\n" + body):
        async with issuer(sending(data)) as address:
            assert await fetch(f"http://{address}/jwks?a=b") == body
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server)
    async with issuer(sending(counted), context) as address:
        with pytest.raises(OSError, match=r"(?i)certificate"):
            await fetch(f"https://{address}/")
        monkeypatch.setenv("SSL_CERT_FILE", certificates.ca)
        assert await fetch(f"https://{address}/") == body


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n", "status 302"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "status 503"),
        (HEAD + b"\r\n" + b" " * (signing_keys.MAX_JWKS_BYTES + 1), "more than"),
        (HEAD + b"Content-Length: 10\r\n\r\n", "without sending complete"),
        (b"not HTTP\r\n\r\n", "illegal status line"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000, "too long"),
        (b"", "ConnectionClosed"),
    ],
)
async def test_a_response_that_is_no_key_set_ends_the_read_with_the_reason(data: bytes, why: str) -> None:
    async with issuer(sending(data)) as address:
        with pytest.raises((OSError, ValueError, signing_keys.h11.ProtocolError), match=why):
            await fetch(f"http://{address}/")


async def test_an_issuer_that_hangs_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_keys, "FETCH_TIMEOUT_S", 0.2)

    async def hang(stream: trio.abc.Stream) -> None:
        await stream.send_all(HEAD)
        await trio.sleep_forever()

    async with issuer(hang) as address:
        with pytest.raises(trio.TooSlowError):
            await fetch(f"http://{address}/")
        keys = signing_keys.SigningKeys(address, lambda: fetch(f"http://{address}/"), REFRESH_S)
        with pytest.raises(InvalidTokenError, match="no key"):
            await verify(keys, ec_key().token())


@pytest.mark.parametrize(
    ("place", "insecure", "why"),
    [
        ("ftp://host/keys", False, "use https"),
        ("/etc/keys.json", False, "use https"),
        ("https:///keys", False, "use https"),
        ("https://host:99999/keys", False, "use https"),
        ("https://user:secret@host/keys", False, "use https"),
        ("file://", False, "use https"),
        ("http://idp.example/keys", False, "others could change"),
        ("http://idp.example/keys", True, None),
        ("http://127.0.0.1:8080/keys", False, None),
        ("http://localhost/keys", False, None),
        ("https://idp.example/keys", False, None),
        ("file:///etc/keys.json", False, None),
    ],
)
def test_a_url_whose_keys_anybody_could_change_is_refused(place: str, insecure: bool, why: str | None) -> None:
    if why is None:
        assert signing_keys.check_place(place, insecure=insecure).geturl() == place
        return
    with pytest.raises(InvalidConfigError, match=why) as caught:
        signing_keys.check_place(place, insecure=insecure)
    assert "secret" not in str(caught.value)
