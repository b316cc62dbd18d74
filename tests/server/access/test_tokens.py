"""Claims of tokens: each that a token lacks is a refusal, and no token, however odd, is anything else."""

from __future__ import annotations

import math
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.access.tokens import (
    MAX_HEADER_CHARS,
    MAX_SECONDS,
    MAX_TOKEN_CHARS,
    ClaimRules,
    CompactToken,
    InvalidTokenError,
    TokenUser,
    read_object,
)

from tests.support.tokens import CLAIMS, NOW_S, base64url, part, unsecured

RULES: Final = ClaimRules(
    issuer=None, audiences=(), scopes=(), clock_skew_s=30, principal_claim="sub", scope_claim="scope", are_signed=True
)
STRICT: Final = attrs.evolve(RULES, issuer="https://idp", audiences=("kafka", "orders"), scopes=("read", "write"))
STRICT_CLAIMS: Final = {**CLAIMS, "iss": "https://idp", "aud": "kafka", "scope": "write read"}
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def check(rules: ClaimRules = RULES, now_s: float = NOW_S, **changes: Any) -> TokenUser:
    claims = {**(STRICT_CLAIMS if rules is STRICT else CLAIMS), **changes}
    return rules.check({name: value for name, value in claims.items() if value is not None}, round(now_s * 1000))


def test_the_user_and_the_end_of_a_token_are_in_its_claims() -> None:
    assert check() == TokenUser("alice", 1000 * (NOW_S + 600))
    assert check(exp=NOW_S + 0.5) == TokenUser("alice", 1000 * NOW_S + 500)
    assert check(STRICT) == check(STRICT, aud=["other", "orders"]) == check(STRICT, scope=["read", "write"])
    rules = attrs.evolve(RULES, principal_claim="azp", scope_claim="scp", scopes=("a",))
    assert check(rules, azp="robot", scp="a b").name == "robot"


REFUSED: Final[dict[str, tuple[ClaimRules, dict[str, Any], str]]] = {
    "expired": (RULES, {"exp": NOW_S - 30}, "has expired"),
    "no expiry": (RULES, {"exp": None}, "no expiry"),
    "an expiry that is text": (RULES, {"exp": str(NOW_S)}, "exp is not a time"),
    "an expiry that is true": (RULES, {"exp": True}, "exp is not a time"),
    "an infinite expiry": (RULES, {"exp": math.inf}, "exp is not a time"),
    "an expiry that is no number": (RULES, {"exp": math.nan}, "exp is not a time"),
    "an expiry too far away": (RULES, {"exp": MAX_SECONDS + 1}, "exp is not a time"),
    "a negative expiry": (RULES, {"exp": -1}, "exp is not a time"),
    "not yet valid": (RULES, {"nbf": NOW_S + 31}, "not yet valid"),
    "no time of issue": (RULES, {"iat": None}, "no time of issue"),
    "no principal": (RULES, {"sub": None}, "no principal: claim sub"),
    "an empty principal": (RULES, {"sub": "  "}, "no principal"),
    "a number as principal": (RULES, {"sub": 5}, "no principal"),
    "a long principal": (RULES, {"sub": "a" * 1025}, "no principal"),
    "another issuer": (STRICT, {"iss": "https://idp/"}, "another issuer"),
    "no issuer": (STRICT, {"iss": None}, "another issuer"),
    "another audience": (STRICT, {"aud": ["KAFKA"]}, "another audience"),
    "no audience": (STRICT, {"aud": None}, "another audience"),
    "an audience that is no list of texts": (STRICT, {"aud": ["kafka", 5]}, "aud is neither a text nor a list"),
    "an audience that nobody expects": (RULES, {"aud": "kafka"}, "expected_audience is not set"),
    "one scope of two": (STRICT, {"scope": "read"}, "lacks scope write"),
    "no scope": (STRICT, {"scope": None}, "lacks scope read write"),
    "a scope that is part of another": (STRICT, {"scope": "read write2"}, "lacks scope write"),
    "scopes that are an object": (STRICT, {"scope": {"read": 1}}, "scope is neither a text nor a list"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_token_without_the_claims_that_are_required_is_refused(name: str) -> None:
    rules, changes, why = REFUSED[name]
    with pytest.raises(InvalidTokenError, match=why):
        check(rules, **changes)


def test_a_missing_scope_is_reported() -> None:
    with pytest.raises(InvalidTokenError) as caught:
        check(STRICT, scope="read")
    assert caught.value.scopes == ("write",)


def test_times_are_accepted_within_the_clock_skew_and_no_further() -> None:
    for seconds in (0, 629):
        check(now_s=NOW_S + seconds)
    check(nbf=NOW_S + 30)
    with pytest.raises(InvalidTokenError):
        check(now_s=NOW_S + 630)
    with pytest.raises(InvalidTokenError):
        check(attrs.evolve(RULES, clock_skew_s=0), now_s=NOW_S + 600)


def test_an_unsecured_token_needs_no_time_of_issue_and_may_name_an_audience() -> None:
    check(attrs.evolve(RULES, are_signed=False), iat=None, aud="kafka")


def header(data: bytes) -> str:
    """A token with this header."""
    return f"{base64url(data)}.{part(CLAIMS)}."


BAD_TOKENS: Final = {
    "nothing": "",
    "two parts": "a.b",
    "four parts": unsecured() + ".x",
    "a header that is not base64": f"a.{part(CLAIMS)}.",
    "a header that is a list": f"{part([])}.{part(CLAIMS)}.",
    "a header that is not UTF-8": header(b'{"alg": "\xff"}'),
    "no algorithm": f"{part({})}.{part(CLAIMS)}.",
    "an algorithm that is a list": unsecured(alg=["none"]),
    "a key id that is an object": unsecured(kid={}),
    "a critical extension": unsecured(crit=["b64"], b64=False),
    "a deep header": header(b"[" * 6000),
    "a long header": unsecured(x="a" * MAX_HEADER_CHARS),
    "a long token": unsecured({"sub": "a" * MAX_TOKEN_CHARS}),
    "a megabyte": "a" * 2**20,
    "infinity": header(b'{"alg": Infinity}'),
    "a number of thousands of digits": header(b'{"alg": %s}' % (b"1" * 5000)),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_what_is_not_a_token_is_refused_without_its_content(name: str) -> None:
    with pytest.raises(InvalidTokenError) as caught:
        CompactToken.parse(BAD_TOKENS[name])
    assert len(str(caught.value)) < 200
    assert "alice" not in str(caught.value)


def test_a_token_is_unsecured_only_with_algorithm_none_and_without_a_signature() -> None:
    assert CompactToken.parse(unsecured()).is_unsecured
    for text in (unsecured() + "c2ln", unsecured(alg="None"), unsecured(alg="HS256"), unsecured(alg="ES256") + "c2ln"):
        assert not CompactToken.parse(text).is_unsecured


@given(st.dictionaries(st.sampled_from(["sub", "exp", "iat", "nbf", "iss", "aud", "scope"]), JSON))
def test_any_claims_are_a_user_or_a_refusal(changes: dict[str, Any]) -> None:
    for rules in (RULES, STRICT):
        try:
            user = rules.check({**(STRICT_CLAIMS if rules is STRICT else CLAIMS), **changes}, NOW_S * 1000)
        except InvalidTokenError:
            continue
        assert user.name.strip()
        assert user.expires_ms > 1000 * (NOW_S - rules.clock_skew_s)


@given(st.text() | JSON.map(part).map(lambda first: f"{first}.{part(CLAIMS)}."))
def test_any_text_is_a_token_or_a_refusal(text: str) -> None:
    try:
        token = CompactToken.parse(text)
        read_object(token.payload, "payload")
    except InvalidTokenError:
        return
    assert isinstance(token.algorithm, str)
