"""The native call `alter_share_group_offsets`, as the client makes it: where a share group reads on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native.messages import decode_request
from triolog.protocol.types import NO_OFFSET, TopicPartition
from triolog.tools.client.admin import Admin

from tests.support.brokers import PARTITION, TOPIC

from .test_group_descriptions import administered

GONE: Final = TopicPartition("gone", 0)


async def start_of(admin: Admin, group: str) -> int:
    (described,) = await admin.describe_groups(group)
    assert described.error is None
    [shared] = described.shared
    return shared.start_offset


async def test_a_group_is_made_and_moved_and_one_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    async with administered(tmp_path) as (broker, admin):
        for start in (4, 9, 2, NO_OFFSET):
            await admin.alter_share_group_offsets("g", {PARTITION: start})
            assert await start_of(admin, "g") == start
        await broker.offsets.commit("other", [(PARTITION, 3, None)])
        with pytest.raises(RequestError) as caught:
            await admin.alter_share_group_offsets("other", {PARTITION: 1})
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert {each.offset for each in (await admin.group_offsets("other")).values()} == {3}


async def test_each_partition_has_an_answer_of_its_own(tmp_path: Path) -> None:
    async with administered(tmp_path) as (_, admin):
        with pytest.raises(RequestError) as caught:
            await admin.alter_share_group_offsets("g", {GONE: 1, PARTITION: 4})
        assert (caught.value.code, "gone-0" in caught.value.message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
        assert await start_of(admin, "g") == 4


def test_an_offset_below_minus_one_is_refused() -> None:
    body = {"group": "g", "partitions": [{"topic": TOPIC, "partition": 0, "start_offset": -2}]}
    with pytest.raises(RequestError, match=r"alter_share_group_offsets\.partitions\[0\]\.start_offset is int -2"):
        decode_request("alter_share_group_offsets", 1, body)
