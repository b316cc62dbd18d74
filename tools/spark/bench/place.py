"""The environment of the Spark benchmark's rows: a server; a warm Spark session and shared data, created on first use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ....protocol.records.columnar.encode import Encoding, encode_batches
from ....protocol.types import TopicPartition
from ...bench.measuring.bench import Bench, Scale
from ...bench.measuring.server import Server, serving
from ...client.blocking import BlockingAdmin, BlockingClient
from ..session import session
from ..sink.delivery import ProduceOutbox, ServerLink
from ..sink.server_access import Servers
from .cpu import cpu_used_s

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = 2_000_000
PARTITIONS: Final = 4
TOPIC: Final = "rows"
BATCH_ROWS: Final = 50_000
"""Rows of a column that is encoded at once."""
FIRST_MS: Final = 1_700_000_000_000
CONFIG: Final = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
"""The JVM as it comes: no flags that would start it faster and let it run slower."""
WARM_UPS: Final = 2
"""Beside the one that `Bench.interleave` makes: the JVM compiles what it has run a few times, workers import once."""


class SparkPlace:
    """Owned by the program that runs the benchmark; made by `open_place`."""

    def __init__(self, bench: Bench, server: Server, directory: Path, resources: ExitStack) -> None:
        self.server = server
        self.directory = directory
        self.say = bench.say
        self._bench = bench
        self._resources = resources

    @cached_property
    def spark(self) -> SparkSession:
        """Start the session; it stops with the place."""
        self.say("starting Spark")
        spark = session("triolog spark bench", config={**CONFIG, "spark.sql.warehouse.dir": f"{self.directory}/warehouse"})
        self._resources.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        return spark

    @property
    def scale(self) -> Scale:
        return self._bench.scale

    @property
    def servers(self) -> str:
        """Return the server's address as an option."""
        return f"{self.server.address[0]}:{self.server.address[1]}"

    @property
    def rows(self) -> int:
        """Return the number of records of the shared topic."""
        return self.scale.count(ROWS)

    def cpu_s(self, actions: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
        """Return the CPU seconds of JVM and workers for each action, warm, in turn."""
        for name, action in actions.items():
            self.say(f"{name}, first runs")
            for _ in range(WARM_UPS):
                action()
        gateway = self.spark.sparkContext._gateway
        assert gateway is not None, "a session has a gateway to its JVM"
        process: subprocess.Popen[bytes] = gateway.proc
        jvm = process.pid
        return self._bench.interleave({name: lambda act=act: cpu_used_s(jvm, act) for name, act in actions.items()})  # type: ignore[misc]

    def read(self, topic: str, **options: object) -> DataFrame:
        """Read a topic through the server."""
        reader = self.spark.read.format("triolog").option("kafka.bootstrap.servers", self.servers).option("subscribe", topic)
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic that keeps its records."""
        with BlockingClient(self.server.address) as client:
            BlockingAdmin(client).create_topic(topic, partitions, {"retention.ms": "-1"})

    def fill(self, topic: str, partitions: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Create a topic with these rows, a batch to each partition in turn."""
        self.create(topic, partitions)
        self.say(f"filling topic {topic}")
        with ServerLink(Servers((self.server.address,))) as link:
            outbox = ProduceOutbox(link, acks=-1)
            for number, batch in enumerate(rows):
                for encoded in encode_batches(batch, Encoding()):
                    outbox.put(TopicPartition(topic, number % partitions), encoded.data)
            outbox.flush()

    @cached_property
    def topic(self) -> str:
        """Fill a topic with ROWS records: a key of 8 bytes, a value of 100."""
        self.fill(TOPIC, PARTITIONS, make_rows(self.rows, 100))
        return TOPIC

    @cached_property
    def segments(self) -> str:
        """Link that topic's files into a directory, as a stopped server would leave them."""
        target = self.directory / "segments"
        for number in range(PARTITIONS):
            source = Path(self.server.data, f"{self.topic}-{number}")
            folder = target / source.name
            folder.mkdir(parents=True)
            for path in source.iterdir():
                os.link(path, folder / path.name)
        return str(target)

    @cached_property
    def parquet(self) -> str:
        """Write the same rows with the same columns to Parquet."""
        self.say("writing Parquet")
        path = str(self.directory / "rows.parquet")
        self.read(self.topic).write.parquet(path)
        return path


def make_rows(count: int, value_bytes: int, *, first_ms: int = FIRST_MS) -> Iterator[pa.RecordBatch]:
    """Yield columns key, value and timestamp; a row each millisecond. Values are hexadecimal noise."""
    import numpy as np
    import pyarrow as pa

    noise = np.random.default_rng(1)
    for start in range(0, count, BATCH_ROWS):
        size = min(BATCH_ROWS, count - start)
        keys = np.arange(start, start + size, dtype=">i8").tobytes()
        text = noise.bytes((size * value_bytes + 1) // 2).hex()[: size * value_bytes].encode()
        yield pa.record_batch(
            {
                "key": _fixed(keys, 8, size),
                "value": _fixed(text, value_bytes, size),
                "timestamp": pa.array(np.arange(first_ms + start, first_ms + start + size), pa.int64()),
            }
        )


def _fixed(data: bytes, width: int, count: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def to_nowhere(rows: DataFrame) -> None:
    """Read all of it, every column, and keep nothing."""
    rows.write.format("noop").mode("overwrite").save()


@contextmanager
def open_place(bench: Bench) -> Iterator[SparkPlace]:
    """Run a server, and a session if a row needs one, for the time of the block."""
    with bench.workspace() as path:
        with serving(path, kafka=True) as server, ExitStack() as resources:
            yield SparkPlace(bench, server, Path(path), resources)
