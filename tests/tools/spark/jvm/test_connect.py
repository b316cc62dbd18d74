"""A client of Spark Connect, in a process without a JVM, reads and writes through a Spark Connect server with triolog."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from triolog.tools.client.blocking import BlockingClient, BlockingConsumer

from tests.support.kafka_jars import unavailable
from tests.support.server_process import Address, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService$"
MAKERS: Final = {
    "session": "from triolog.tools.spark.session import session; spark = session(remote=remote)",
    "plain": "from pyspark.sql import SparkSession; spark = SparkSession.builder.remote(remote).getOrCreate()",
}
PROGRAM: Final = """
import sys
remote, servers, topic, target, checkpoint = sys.argv[1:]
{maker}
place = {{"kafka.bootstrap.servers": servers}}
rows = spark.read.format("triolog").options(**place, subscribe=topic).load()
print("batch", rows.count())
stream = spark.readStream.format("triolog").options(**place, subscribe=topic, startingOffsets="earliest").load()
writer = stream.select("value").writeStream.format("triolog").options(**place, topic=target, checkpointLocation=checkpoint)
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
print("stream", query.lastProgress.numInputRows)
try:
    spark.read.format("triolog").options(**place, subscribe=topic, wholly="1").load()
except Exception as exc:
    print("refused", "unknown option wholly" in str(exc))
spark.stop()
"""


@pytest.fixture(scope="module")
def remote(spark: SparkSession) -> Iterator[str]:
    """A Spark Connect server in the JVM of the session."""
    if importlib.util.find_spec("grpc") is None:
        unavailable("the packages of Spark Connect are not installed: pip install 'pyspark[connect]'")
    jvm: Any = spark._jvm  # type: ignore[attr-defined]
    service = getattr(getattr(jvm, SERVICE), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())  # type: ignore[attr-defined]
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())


@pytest.mark.parametrize("maker", MAKERS)
def test_a_client_of_spark_connect_reads_and_writes(
    remote: str, served: tuple[Address, BlockingClient], tmp_path: Path, maker: str
) -> None:
    address, client = served
    topic, target = f"connect-{maker}", f"connected-{maker}"
    client.create_topic(topic, 2, {"retention.ms": "-1"})
    client.create_topic(target, 1, {"retention.ms": "-1"})
    client.append(topic, [b"%d" % number for number in range(10)])
    arguments = [remote, f"{address.host}:{address.port}", topic, target, str(tmp_path / "checkpoint")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(maker=MAKERS[maker]), *arguments],
        env=environment({"JAVA_HOME": "/nonexistent"}),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout.splitlines() == ["batch 10", "stream 10", "refused True"], done.stderr
    with BlockingConsumer(client, follow=False) as consumer:
        consumer.assign(target)
        assert sorted(int(record.value or b"") for _, record in consumer.records()) == list(range(10))
