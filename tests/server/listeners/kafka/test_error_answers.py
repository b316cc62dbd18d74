"""Requests that are answered with one error as a whole, in every API and version."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.apis import APIS, Api, ApiKey
from triolog.protocol.schema import codec
from triolog.protocol.schema.fields import fields_of
from triolog.server.listeners.kafka.error_answers import SHAPES, error_codes, error_codes_steps, error_response

from tests.support.in_steps import finished
from tests.support.kafka_values import SIDES, random_value

CODE: Final = ErrorCode.UNKNOWN_SERVER_ERROR


def test_every_api_has_its_shape() -> None:
    assert SHAPES.keys() == APIS.keys()


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_error_can_be_written_and_is_found_in_every_version(api: Any, seed: int) -> None:
    for message in SIDES[f"{api.name}Request"]:
        version = message.version
        request = random_value(message.cls, version, Random(seed))
        answer = error_response(api, version, request, CODE, "why")
        data = b"".join(codec.write(answer, version, flexible=api.is_flexible(version)))
        read, stop = codec.read(api.response, version, memoryview(data), flexible=api.is_flexible(version))
        assert stop == len(data)
        assert set(error_codes(read)) == ({int(CODE)} if _has_room(api, version, answer) else set()), (version, read)


def _has_room(api: Api, version: int, answer: Any) -> bool:
    """Whether the version has a code on top, or the request named something that one stands beside."""
    has_top = any(field.name == "error_code" for field in fields_of(api.response, version)) and SHAPES[api.key].has_top
    lists = [each.answer for each in SHAPES[api.key].lists if version in each.versions]
    return has_top or any(error_codes(element) for name in lists for element in getattr(answer, name))


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_codes_of_any_answer_are_found_at_once_and_in_steps(api: Any, seed: int) -> None:
    message = SIDES[f"{api.name}Response"][-1]
    answer = random_value(message.cls, message.version, Random(seed))
    assert error_codes(answer) == finished(error_codes_steps(answer))
    assert len(set(error_codes(answer))) == len(error_codes(answer))


@pytest.mark.parametrize(
    ("key", "version", "is_on_top"),
    [
        (ApiKey.FETCH, 12, True),
        (ApiKey.OFFSET_FETCH, 1, False),
        (ApiKey.OFFSET_FETCH, 2, True),
        (ApiKey.OFFSET_FETCH, 8, False),
        (ApiKey.FIND_COORDINATOR, 3, True),
        (ApiKey.FIND_COORDINATOR, 4, False),
        (ApiKey.HEARTBEAT, 4, True),
    ],
)
def test_where_the_error_stands_depends_on_the_version(key: ApiKey, version: int, is_on_top: bool) -> None:
    api = APIS[key]
    answer = error_response(api, version, api.request(), CODE)
    data = b"".join(codec.write(answer, version, flexible=api.is_flexible(version)))
    read, _ = codec.read(api.response, version, memoryview(data), flexible=api.is_flexible(version))
    assert bool(getattr(read, "error_code", 0)) is is_on_top
