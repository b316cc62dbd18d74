from __future__ import annotations

from triolog.protocol.native import messages
from triolog.protocol.native.reference import key_table


def test_a_table_has_the_keys_of_structs_behind_the_key_they_stand_under() -> None:
    assert key_table(messages.CommitOffsetsRequest).splitlines() == [
        "| key | value |",
        "|---|---|",
        "| `group` | str of 1 to 255 characters |",
        "| `partitions` | array of at most 10,000 maps |",
        "| `partitions[].topic` | str of 1 to 249 characters |",
        "| `partitions[].partition` | int from 0 to 2147483647 |",
        "| `partitions[].offset` | int from 0 to 9223372036854775807 |",
        "| `partitions[].metadata`? | nil or str of at most 32767 characters |",
        "| `transaction`? | nil or map |",
        "| `transaction.transactional_id` | str of 1 to 255 characters |",
        "| `transaction.producer_id` | int from 0 to 9223372036854775807 |",
        "| `transaction.producer_epoch` | int from 0 to 32767 |",
    ]


def test_keys_that_stand_among_those_of_the_request_have_its_paths() -> None:
    rows = key_table(messages.EndTransactionRequest).splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == ["transactional_id", "producer_id", "producer_epoch", "commit"]


def test_a_map_of_structs_is_told_by_any_name() -> None:
    assert "| `topics[].config[name].value` | str |" in key_table(messages.DescribeConfigsResponse)
