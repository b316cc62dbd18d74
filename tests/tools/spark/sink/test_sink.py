from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
import triolog
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructType
from triolog.protocol.types import CompressionType
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.tls import TlsConfig
from triolog.tools.spark.option_table.option import OptionError
from triolog.tools.spark.sink import writer
from triolog.tools.spark.sink.delivery import DeliveryError
from triolog.tools.spark.sink.server_access import NOBODY, Servers
from triolog.tools.spark.sink.sink import BatchWriter, StreamWriter, Written, batch_writer, stream_writer
from triolog.tools.spark.sink.worker import PerProcess, settle
from triolog.tools.spark.sink.write_options import DeliveryGuarantee, WriteOptions
from triolog.tools.spark.sink.write_rows import RowError
from triolog.tools.spark.sink.writer import WriteTask

VALUES = StructType().add("value", StringType())


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(config={"retention.ms": "-1"}, native="127.0.0.1:0") as running:
        running.create_topic("t")
        yield running


def given(broker: BlockingBroker, **options: str) -> dict[str, str]:
    return {"triolog.servers": f"127.0.0.1:{broker.native.port}", "topic": "t", **options}


def written(broker: BlockingBroker, application: str, version: int, *values: str) -> Written:
    """What a task answers that has staged these values."""
    task = WriteTask(application=application, version=version, spark_partition=0)
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], ["value"])
    return Written(writer.stage([rows], WriteOptions.from_options(given(broker)), task))


def values(broker: BlockingBroker) -> list[bytes | None]:
    return [record.value for record in broker.fetch("t")]


def stream(broker: BlockingBroker, **options: str) -> StreamWriter:
    """A writer as Spark makes one for each commit, pickled messages aside."""
    made = stream_writer(given(broker, **options), VALUES, False)
    assert isinstance(made, StreamWriter)
    return made


def batch(broker: BlockingBroker, **options: str) -> BatchWriter:
    """A writer as it comes back from a pickle."""
    made = cloudpickle.loads(cloudpickle.dumps(batch_writer(given(broker, **options), VALUES, False)))
    assert isinstance(made, BatchWriter)
    return made


def test_fresh_stream_writer_commits_what_messages_name_and_repeats_nothing(broker: BlockingBroker) -> None:
    message = cloudpickle.loads(cloudpickle.dumps(written(broker, "query", 5, "a")))
    stream(broker).commit([message], 5)
    stream(broker).commit([message], 5)
    stream(broker).commit([written(broker, "query", 5, "a again")], 5)
    stream(broker).commit([written(broker, "query", 6, "b")], 6)
    assert values(broker) == [b"a", b"b"]


def test_failed_batch_is_aborted_and_its_repetition_committed(broker: BlockingBroker) -> None:
    first = written(broker, "query", 0, "a")
    stream(broker).abort([None, first, None], 0)
    with pytest.raises(DeliveryError, match="committing version 0 of query to topic t"):
        stream(broker).commit([first], 0)
    stream(broker).commit([written(broker, "query", 0, "a")], 0)
    assert values(broker) == [b"a"]


def test_batch_of_which_every_task_failed_needs_no_server(broker: BlockingBroker) -> None:
    made = stream(broker)
    broker.stop()
    made.abort([None, None], 3)
    made.commit([], 3)


def test_txn_app_id_stands_for_the_query_even_without_messages(broker: BlockingBroker) -> None:
    stream(broker, txnAppId="app").commit([], 0)
    stream(broker, txnAppId="app").commit([written(broker, "app", 0, "a")], 0)
    assert values(broker) == []
    stream(broker, txnAppId="app").commit([written(broker, "app", 1, "b")], 1)
    assert values(broker) == [b"b"]


def test_batch_writer_commits_under_the_name_that_its_tasks_staged_under(broker: BlockingBroker) -> None:
    made = batch(broker)
    made.commit([written(broker, made._application, 0, "a")])
    made.abort([written(broker, made._application, 0, "b"), None])
    assert values(broker) == [b"a"]
    assert batch(broker)._application != made._application


def test_at_least_once_has_nothing_to_commit_or_abort(broker: BlockingBroker) -> None:
    made = [stream(broker, deliveryGuarantee="at-least-once"), batch(broker, deliveryGuarantee="at-least-once")]
    broker.stop()
    for each in made:
        arguments = (0,) if isinstance(each, StreamWriter) else ()
        each.commit([Written(None)], *arguments)
        each.abort([Written(None), None], *arguments)


@pytest.mark.parametrize(
    ("make", "options", "overwrite", "complaint"),
    [
        (batch_writer, {}, True, "mode overwrite is refused"),
        (batch_writer, {"txnAppId": "a"}, False, "txnAppId of a batch write needs txnVersion"),
        (batch_writer, {"size": "1"}, False, "unknown option size"),
        (stream_writer, {}, True, "output mode complete is refused"),
        (stream_writer, {"txnAppId": "a", "txnVersion": "1"}, False, "txnVersion is refused in a streaming query"),
    ],
)
def test_write_that_cannot_be_is_refused(
    broker: BlockingBroker, make: Callable[..., object], options: dict[str, str], overwrite: bool, complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        make(given(broker, **options), VALUES, overwrite)


def test_wrong_schema_is_refused_before_any_task_runs(broker: BlockingBroker) -> None:
    for make in (batch_writer, stream_writer):
        with pytest.raises(RowError, match="column value is missing"):
            make(given(broker), StructType().add("key", StringType()), False)


class Thing:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_thing_is_made_once_for_its_key_until_it_is_dropped() -> None:
    kept = PerProcess[str, Thing](2)
    first = kept.get("a", Thing)
    assert kept.get("a", Thing) is first
    assert kept.get("b", Thing) is not first
    kept = PerProcess[str, Thing](2)
    first = kept.get("a", Thing)
    kept.drop("a")
    kept.drop("never there")
    assert first.is_closed
    assert kept.get("a", Thing) is not first


def test_the_oldest_is_closed_when_there_are_too_many() -> None:
    kept = PerProcess[str, Thing](2)
    things = {name: kept.get(name, Thing) for name in "abc"}
    assert [thing.is_closed for thing in things.values()] == [True, False, False]
    kept.close()
    assert all(thing.is_closed for thing in things.values())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # idle threads of other tests
def test_a_forked_process_closes_its_copy_and_makes_its_own() -> None:
    kept = PerProcess[str, Thing](2)
    first = kept.get("a", Thing)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        second = kept.get("a", Thing)
        os.write(write, b"%d%d" % (second is not first, first.is_closed))
        os._exit(0)
    os.close(write)
    answer = os.read(read, 2)
    os.close(read)
    os.waitpid(child, 0)
    assert answer == b"11"
    assert not first.is_closed
    assert kept.get("a", Thing) is first


def test_outside_of_a_task_the_collector_is_left_alone() -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before


SERVER = {"kafka.bootstrap.servers": "localhost:9095"}


@pytest.mark.parametrize(
    ("option", "text", "field", "value"),
    [
        ("kafka.bootstrap.servers", "example:1", "servers", Servers((("example", 1),))),
        ("kafka.bootstrap.servers", "[::1]:9095,b:1", "servers", Servers((("::1", 9095), ("b", 1)))),
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
    assert WriteOptions.from_options({"triolog.servers": "localhost:1"}).servers == Servers((("localhost", 1),))
    options = WriteOptions.from_options(SERVER | {"txnAppId": "a", "txnVersion": "3"})
    assert (options.txn_app_id, options.txn_version) == ("a", 3)
    for text, acks in (("0", 0), ("1", 1), ("-1", -1)):
        options = WriteOptions.from_options(SERVER | {"deliveryGuarantee": "at-least-once", "kafka.acks": text})
        assert options.acks == acks


@pytest.mark.parametrize("option", ["checkpointLocation", "queryName", "includeHeaders", "failOnDataLoss"])
def test_options_that_spark_or_a_kafka_job_hands_over_are_taken(option: str) -> None:
    WriteOptions.from_options(SERVER | {option: "true"})


def test_unused_options_are_ignored_with_one_warning_if_strict_options_is_false() -> None:
    unused = {"kafka.linger.ms": "5", "startingOffsets": "earliest", "kafka.max.poll.records": "5"}
    with pytest.warns(UserWarning, match=r"no effect: kafka\.linger\.ms, kafka\.max\.poll\.records, startingOffsets$"):
        WriteOptions.from_options(SERVER | unused | {"strictOptions": "false"})


def test_a_password_of_kafkas_options_logs_in_and_no_error_repeats_it() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="s\\"ecret";'
    given = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.jaas.config": jaas}
    given |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem"}
    access = WriteOptions.from_options(SERVER | given).access
    assert access.tls == TlsConfig(ca_file="/ca.pem")
    assert access.login is not None
    assert (access.login.user, access.login.read_password(), access.login.mechanism) == ("ann", 's"ecret', "SCRAM-SHA-512")
    keystore = {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": "/me.pem"}
    plain = {"kafka.security.protocol": "SSL", "kafka.ssl.endpoint.identification.algorithm": ""}
    tls = WriteOptions.from_options(SERVER | plain | keystore).access.tls
    assert tls == TlsConfig(certificate_file="/me.pem", check_hostname=False)
    assert WriteOptions.from_options(SERVER | {"kafka.security.protocol": "PLAINTEXT"}).access == NOBODY


SSL = {"kafka.security.protocol": "SSL"}
SASL = {"kafka.security.protocol": "sasl_plaintext"}
SCRAM = {**SASL, "kafka.sasl.mechanism": "SCRAM-SHA-256"}
PLAIN = {**SASL, "kafka.sasl.mechanism": "PLAIN"}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BEARER = {**SASL, "kafka.sasl.mechanism": "OAUTHBEARER"}
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
MODULE = {"kafka.sasl.jaas.config": f"{BEARER_MODULE};"}
TOKEN_URL = "kafka.sasl.oauthbearer.token.endpoint.url"
HANDLER = "kafka.sasl.login.callback.handler.class"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "localhost"}, "'localhost', expected the address of a server"),
        ({"kafka.bootstrap.servers": "localhost:0"}, "expected the address"),
        ({"kafka.bootstrap.servers": "a:1", "triolog.servers": "b:1"}, "different servers"),
        (SERVER | {"topics": "t"}, "unknown option topics. Did you mean topic?"),
        (SERVER | {"txnVersoin": "1"}, "unknown option txnversoin. Did you mean txnVersion?"),
        (SERVER | {"rate": "1"}, "unknown option rate. A write takes"),
        (SERVER | {"subscribe": "t"}, "option subscribe is refused: it selects topics to read. To write, set the option topic"),
        (SERVER | {"topic": "t", "path": "t"}, "option path is refused: the option topic"),
        (SERVER | {"topic": ""}, "topic is empty"),
        (SERVER | {"startingOffsets": "earliest"}, "option startingOffsets is refused: it is an option of reading"),
        (SERVER | {"kafka.linger.ms": "5"}, "option kafka.linger.ms is refused: batchBytes and batchRecords set the sizes"),
        (SERVER | {"kafka.transactional.id": "a", "strictOptions": "false"}, "the sink commits by itself"),
        (SERVER | {"kafka.enable.idempotence": "true", "deliveryGuarantee": "at-least-once"}, "writes its rows again"),
        (SERVER | {"kafka.enable.idempotence": "1"}, "kafka.enable.idempotence is '1', expected one of true, false"),
        (SERVER | {"kafka.security.protocol": "TLS"}, "'TLS', expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (SERVER | {"kafka.ssl.truststore.type": "PEM"}, "no effect unless kafka.security.protocol is SSL or SASL_SSL"),
        (SERVER | {"kafka.sasl.jaas.config": "x"}, "no effect unless kafka.security.protocol is SASL_PLAINTEXT or SASL_SSL"),
        (
            SERVER | SSL | {"triolog.tlsCa": "/ca"},
            "kafka.security.protocol and triolog.tlsCa both set TLS or a login",
        ),
        (SERVER | SSL | {"kafka.ssl.truststore.location": "/ca.jks"}, "a store in the format JKS cannot be read here"),
        (SERVER | SSL | {"kafka.ssl.keystore.type": "PKCS12"}, "a store in the format PKCS12 cannot be read here"),
        (SERVER | SSL | {"kafka.ssl.keystore.type": "PEM"}, "kafka.ssl.keystore.location is missing"),
        (SERVER | SSL | {"kafka.ssl.endpoint.identification.algorithm": "x"}, "is 'x', expected https"),
        (SERVER | SSL | {"kafka.ssl.keystore.password": "x", "strictOptions": "false"}, "reads PEM files only"),
        (SERVER | SASL, "kafka.sasl.mechanism is missing, which means GSSAPI"),
        (SERVER | SASL | {"kafka.sasl.mechanism": "GSSAPI"}, "'GSSAPI'; expected one of"),
        (SERVER | BEARER, "kafka.sasl.jaas.config is missing: the login module for OAUTHBEARER"),
        (SERVER | BEARER | {"kafka.sasl.jaas.config": f"{PLAIN_MODULE};"}, "does not log in with OAUTHBEARER"),
        (SERVER | BEARER | {"kafka.sasl.jaas.config": f"{BEARER_MODULE} clientSecret=hidden;"}, "has the setting clientSecret"),
        (
            SERVER | BEARER | {"kafka.sasl.jaas.config": f"{BEARER_MODULE} unsecuredLoginStringClaim_sub=ann;"},
            "has the setting unsecuredLoginStringClaim_sub, expected extension_NAME only",
        ),
        (SERVER | BEARER | MODULE, "kafka.sasl.oauthbearer.token.endpoint.url is missing; expected file:///PATH"),
        (
            SERVER | BEARER | MODULE | {TOKEN_URL: "https://me:hidden@issuer/token"},
            "has the scheme 'https'; expected file:///PATH",
        ),
        (SERVER | BEARER | MODULE | {TOKEN_URL: "file://elsewhere/token"}, "expected file:///PATH"),
        (SERVER | BEARER | MODULE | {HANDLER: "org.example.Handler"}, "classes of Java do not run here"),
        (SERVER | BEARER | {"kafka.sasl.oauthbearer.scope": "x", "strictOptions": "false"}, "requests no token from an issuer"),
        (SERVER | BEARER | {"kafka.sasl.oauthbearer.jwks.endpoint.url": "x"}, "does not verify tokens. The server does"),
        (SERVER | SCRAM | {TOKEN_URL: "file:///token"}, "has no effect unless kafka.sasl.mechanism is OAUTHBEARER"),
        (SERVER | {"triolog.tokenFile": "/t", "triolog.user": "ann"}, "triolog.tokenFile and a user or a password"),
        (SERVER | {"triolog.tokenFile": ""}, "triolog.tokenFile is empty"),
        (SERVER | SCRAM, "kafka.sasl.jaas.config is missing"),
        (SERVER | SCRAM | {"kafka.sasl.jaas.config": "x"}, "kafka.sasl.jaas.config cannot be read"),
        (SERVER | SCRAM | {"kafka.sasl.jaas.config": f"{PLAIN_MODULE};"}, "does not log in with SCRAM-SHA-256"),
        (SERVER | PLAIN | {"kafka.sasl.jaas.config": f"{PLAIN_MODULE} username=a;"}, "needs username and password"),
        (SERVER | PLAIN | {"kafka.sasl.jaas.config": f"{PLAIN_MODULE} user_a=b;"}, "has the setting user_a"),
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
    assert "hidden" not in str(refused.value)
