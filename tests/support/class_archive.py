"""Options of a JVM that starts fast: C1 alone, the serial collector, and classes from an archive (AppCDS).

The first test on a machine that needs a JVM makes the archive in the temporary folder: that start takes half as long again, and
each later one a fifth. The JVM ignores an archive that does not fit it or its jars, so an old one costs nothing but time. Spark
has one archive, and brokers of Apache Kafka have another.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from triolog.tools.bench.kafka.jars import locked

FAST: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:disable -Xlog:all=off"
ROOT: Final = Path(__file__).resolve().parents[2]
TIMEOUT_S: Final = 280.0


def jvm_options() -> str:
    """With the archive, which is made when it is missing."""
    from triolog.tools.spark.java import find_java
    from triolog.tools.spark.unpacked import unpacked_home

    text = f"{find_java()} {unpacked_home(os.environ)} {FAST}"
    return f"{FAST} -XX:SharedArchiveFile={archive('spark', text, _of_spark)}"


def archive(name: str, text: str, make: Callable[[Path], None]) -> Path:
    """Return the archive of a kind of programs. `make` writes it where it is missing. `text` names what it depends on."""
    folder = Path(tempfile.gettempdir()) / f"triolog-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsa"
    with locked(folder / f"{name}.lock"):
        if not path.is_file():
            made = path.with_suffix(".new")
            make(made)
            made.rename(path)
    return path


def _of_spark(made: Path) -> None:
    command = [sys.executable, "-m", __spec__.name, f"{FAST} -XX:ArchiveClassesAtExit={made}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, capture_output=True)


def main(options: str) -> None:
    """Use what most tests use: queries, files, a stream."""
    from triolog.tools.spark.session import session

    with tempfile.TemporaryDirectory() as folder:
        config = {"spark.driver.extraJavaOptions": options, "spark.ui.enabled": "false", "spark.local.dir": folder}
        spark = session("classes", config=config | {"spark.sql.shuffle.partitions": "2"})
        spark.range(10).selectExpr("id", "md5(cast(id as string)) text").write.parquet(f"{folder}/rows")
        rows = spark.readStream.schema("id bigint, text string").parquet(f"{folder}/rows")
        writer = rows.where("id > 3").writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        writer.option("path", f"{folder}/copy").trigger(availableNow=True).start().awaitTermination()
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
