from __future__ import annotations

from typing import Final

import pytest
from kio.index import load_request_schema
from triolog.protocol.kafka.apis import APIS, Api, ApiKey
from triolog.protocol.schema.fields import INT16_MAX

from tests.support.kafka_oracles import NEWER, WITHOUT_KIO

IDS: Final = [api.name for api in APIS.values()]


def test_every_key_has_its_api() -> None:
    assert set(APIS) == set(ApiKey)
    assert [api.key for api in APIS.values()] == list(APIS)


@pytest.mark.parametrize("api", APIS.values(), ids=IDS)
def test_the_names_and_first_flexible_versions_are_kafkas(api: Api) -> None:
    for version in range(api.lowest_read, api.highest + 1):
        if (api.name, version) in WITHOUT_KIO | NEWER:
            assert api.is_flexible(version) == ((api.name, version) in NEWER)
            continue
        schema = load_request_schema(api.key, version)
        assert schema.__name__ == f"{api.name}Request"
        assert schema.__flexible__ == api.is_flexible(version)


@pytest.mark.parametrize("api", APIS.values(), ids=IDS)
def test_versions_are_in_order(api: Api) -> None:
    assert 0 <= api.lowest <= api.lowest_read <= api.highest
    assert api.first_flexible == INT16_MAX or 0 <= api.first_flexible <= api.highest


def test_only_produce_is_advertised_below_what_is_read() -> None:
    assert [api.key for api in APIS.values() if api.lowest != api.lowest_read] == [ApiKey.PRODUCE]


@pytest.mark.parametrize("api", APIS.values(), ids=IDS)
def test_messages_are_named_after_their_api(api: Api) -> None:
    assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")
