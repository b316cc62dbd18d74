from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.types import CompressionType
from triolog.tools.spark.sink.write_options import DeliveryGuarantee, OptionError, WriteOptions

SERVER = {"kafka.bootstrap.servers": "localhost:9095"}


@pytest.mark.parametrize(
    ("option", "text", "field", "value"),
    [
        ("kafka.bootstrap.servers", "example:1", "address", ("example", 1)),
        ("kafka.bootstrap.servers", "[::1]:9095", "address", ("::1", 9095)),
        ("topic", "t", "topic", "t"),
        ("kafka.compression.type", "zstd", "compression", CompressionType.ZSTD),
        ("kafka.compression.type", "none", "compression", CompressionType.NONE),
        ("kafka.acks", "all", "acks", -1),
        ("deliveryGuarantee", "exactly-once", "delivery_guarantee", DeliveryGuarantee.EXACTLY_ONCE),
        ("deliveryGuarantee", "At-Least-Once", "delivery_guarantee", DeliveryGuarantee.AT_LEAST_ONCE),
        ("txnAppId", "daily", "txn_app_id", "daily"),
        ("kafka.delivery.timeout.ms", "5", "delivery_timeout_ms", 5),
        ("kafka.request.timeout.ms", "7", "request_timeout_ms", 7),
        ("batchBytes", "65536", "batch_bytes", 65536),
        ("batchRecords", "10", "batch_records", 10),
    ],
)
def test_option_becomes_its_field(option: str, text: str, field: str, value: object) -> None:
    for name in (option, option.lower()):
        assert getattr(WriteOptions.from_options(SERVER | {name: text}), field) == value


def test_alias_version_and_acks_have_their_meaning() -> None:
    assert WriteOptions.from_options({"triolog.servers": "localhost:1"}).address == ("localhost", 1)
    options = WriteOptions.from_options(SERVER | {"txnAppId": "a", "txnVersion": "3"})
    assert (options.txn_app_id, options.txn_version) == ("a", 3)
    for text, acks in (("0", 0), ("1", 1), ("-1", -1)):
        options = WriteOptions.from_options(SERVER | {"deliveryGuarantee": "at-least-once", "kafka.acks": text})
        assert options.acks == acks


@pytest.mark.parametrize("option", ["checkpointLocation", "queryName", "includeHeaders", "failOnDataLoss"])
def test_options_that_spark_or_a_kafka_job_hands_over_are_taken(option: str) -> None:
    WriteOptions.from_options(SERVER | {option: "true"})


def test_other_kafka_options_are_ignored_with_one_warning() -> None:
    with pytest.warns(UserWarning, match=r"ignored.*: kafka\.linger\.ms, kafka\.security\.protocol$"):
        WriteOptions.from_options(SERVER | {"kafka.security.protocol": "SSL", "kafka.linger.ms": "5"})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "localhost"}, "'localhost', expected the address of one server"),
        ({"kafka.bootstrap.servers": "a:1,b:2"}, "'a:1,b:2', expected the address of one server"),
        ({"kafka.bootstrap.servers": "localhost:0"}, "expected the address"),
        ({"kafka.bootstrap.servers": "a:1", "triolog.servers": "b:1"}, "different servers"),
        (SERVER | {"topics": "t"}, "unknown option topics; did you mean topic?"),
        (SERVER | {"txnVersoin": "1"}, "unknown option txnversoin; did you mean txnVersion?"),
        (SERVER | {"rate": "1"}, "unknown option rate; a write takes"),
        (SERVER | {"subscribe": "t"}, "option subscribe is refused: it says what is read; where rows go is the option topic"),
        (SERVER | {"topic": "t", "path": "t"}, "option path is refused: where rows go is the option topic"),
        (SERVER | {"topic": ""}, "topic is empty"),
        (SERVER | {"startingOffsets": "earliest"}, "unknown option startingoffsets"),
        (SERVER | {"kafka.compression.type": "brotli"}, "'brotli', expected one of none, gzip, snappy, lz4, zstd"),
        (SERVER | {"kafka.acks": "2"}, "kafka.acks is '2'"),
        (SERVER | {"kafka.acks": "1"}, "exactly-once needs all"),
        (SERVER | {"deliveryGuarantee": "at-most-once"}, "deliveryGuarantee is 'at-most-once'"),
        (SERVER | {"includeHeaders": "yes"}, "includeHeaders is 'yes'"),
        (SERVER | {"txnVersion": "1"}, "txnVersion needs txnAppId"),
        (SERVER | {"txnAppId": "a", "txnVersion": "-1"}, "txnVersion is '-1'"),
        (SERVER | {"txnAppId": ""}, "txnAppId has 0 characters"),
        (SERVER | {"txnAppId": "a" * 256}, "txnAppId has 256 characters"),
        (SERVER | {"txnAppId": "a", "deliveryGuarantee": "at-least-once"}, "txnAppId has no meaning"),
        (SERVER | {"batchBytes": "1m"}, "batchBytes is '1m', expected a number from 1024"),
        (SERVER | {"batchRecords": "0"}, "batchRecords is '0', expected a number from 1"),
        (SERVER | {"kafka.delivery.timeout.ms": "soon"}, "kafka.delivery.timeout.ms is 'soon'"),
        (SERVER | {"kafka.request.timeout.ms": "0"}, "kafka.request.timeout.ms is '0'"),
    ],
)
def test_bad_option_is_refused_by_name(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError) as refused:
        WriteOptions.from_options(options)
    assert complaint in str(refused.value)
