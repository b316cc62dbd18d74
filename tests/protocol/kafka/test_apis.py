from __future__ import annotations

from kio.index import load_request_schema
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.schema.fields import INT16_MAX

from tests.support.kafka_oracles import NEWER, WITHOUT_KIO


def test_every_key_has_its_api() -> None:
    assert set(APIS) == set(ApiKey)
    assert [api.key for api in APIS.values()] == list(APIS)


def test_the_names_and_first_flexible_versions_are_kafkas() -> None:
    for api in APIS.values():
        assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")
        for version in range(api.lowest_read, api.highest + 1):
            if (api.name, version) in WITHOUT_KIO | NEWER:
                assert api.is_flexible(version) == ((api.name, version) in NEWER), (api.name, version)
                continue
            schema = load_request_schema(api.key, version)
            assert schema.__name__ == f"{api.name}Request"
            assert schema.__flexible__ == api.is_flexible(version), (api.name, version)


def test_versions_are_in_order_and_only_produce_is_advertised_below_what_is_read() -> None:
    for api in APIS.values():
        assert 0 <= api.lowest <= api.lowest_read <= api.highest, api.name
        assert api.first_flexible == INT16_MAX or 0 <= api.first_flexible <= api.highest, api.name
    assert [api.key for api in APIS.values() if api.lowest != api.lowest_read] == [ApiKey.PRODUCE]
