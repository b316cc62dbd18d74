"""Which HTTP requests are answered: not those that a page of somebody else has a browser send, nor those without the token."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.errors import InvalidConfigError
from triolog.server.config.broker_config import Address
from triolog.server.listeners.http.access import HttpAccess, HttpRequest, read_token

TOKEN = "0123456789abcdef"


def status(access: HttpAccess, method: str = "GET", body: bytes = b"", **headers: str) -> int:
    """What a request is answered with; 200 stands for that it is."""
    named = {"host": "127.0.0.1:4000", **{name.replace("_", "-"): value for name, value in headers.items()}}
    refusal = access.refusal(HttpRequest(method, "/reset", "", {name: text for name, text in named.items() if text}, body))
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:4000", 200),
        ("localhost:4000", 200),
        ("LOCALHOST", 200),
        ("a.localhost:1", 200),
        ("[::1]:4000", 200),
        ("[::1]", 200),
        ("10.0.0.1:4000", 200),
        ("", 200),
        ("evil.example:4000", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:4000", 403),
        ("evil.example:4000@localhost", 403),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(host: str, expected: int) -> None:
    assert status(HttpAccess(), host=host) == expected
    assert status(HttpAccess(is_loopback=False), host=host) == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:4001"}, 403),
        ({"origin": "https://127.0.0.1:4000"}, 403),
        ({"origin": "http://127.0.0.1:4000"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
    ],
)
@pytest.mark.parametrize("is_loopback", [True, False])
def test_a_page_of_another_site_is_refused(headers: dict[str, str], expected: int, is_loopback: bool) -> None:
    assert status(HttpAccess(is_loopback=is_loopback), **headers) == expected


@pytest.mark.parametrize(
    ("method", "body", "content_type", "expected"),
    [
        ("POST", b"", "", 415),
        ("POST", b"{}", "text/plain", 415),
        ("POST", b"{}", "application/x-www-form-urlencoded", 415),
        ("POST", b"{}", "application/json", 200),
        ("POST", b"", "Application/JSON; charset=utf-8", 200),
        ("PUT", b"", "", 415),
        ("DELETE", b"", "", 200),
        ("DELETE", b"{}", "text/plain", 415),
        ("GET", b"", "", 200),
        ("GET", b"{}", "text/plain", 415),
    ],
)
def test_what_changes_something_is_json(method: str, body: bytes, content_type: str, expected: int) -> None:
    assert status(HttpAccess(), method, body, content_type=content_type) == expected


@pytest.mark.parametrize(("content_type", "expected"), [("", 200), ("application/json", 200), ("text/plain", 415)])
@pytest.mark.parametrize("body", [b"", b"{}"])
def test_a_change_without_a_content_type_is_accepted_where_allowed(content_type: str, expected: int, body: bytes) -> None:
    access = HttpAccess(accepts_untyped=True)
    assert status(access, "POST", body, content_type=content_type) == expected
    assert status(access, "POST", body, content_type=content_type, origin="http://evil.example") == 403


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("", 401),
        (TOKEN, 401),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN}", 200),
    ],
)
def test_a_token_is_asked_for(authorization: str, expected: int) -> None:
    access = HttpAccess.of(Address("0.0.0.0", 1), TOKEN)
    assert not access.is_loopback
    assert status(access, authorization=authorization) == expected
    assert TOKEN not in repr(access)


def test_a_token_is_read_from_a_file_and_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(str(file)) == TOKEN
    for wrong in (b"short", b"", b"\xff" * 20, b"with spaces " * 5, b"x" * 5000):
        file.write_bytes(wrong)
        with pytest.raises(InvalidConfigError) as caught:
            read_token(str(file))
        assert not wrong or wrong.decode("latin-1") not in str(caught.value)
    with pytest.raises(InvalidConfigError, match="no token can be read from"):
        read_token(str(tmp_path / "missing"))
