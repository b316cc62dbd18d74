"""The benchmark against Apache Kafka runs to its end with tiny counts. No figure is asserted: they are about the machine.

Its generator is in Go, which compiles it for minutes on a fresh machine: what runs it is `full`. The rows of `test_table.py` go
through the same harness in Python.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import triolog
from click.testing import CliRunner
from triolog.protocol.extras import how_to_install
from triolog.tools.bench.kafka.brokers import KAFKA, KFAKE, TRIOLOG, Brokers, open_brokers
from triolog.tools.bench.kafka.command import command
from triolog.tools.bench.kafka.forwarder import missing, running, watch
from triolog.tools.bench.kafka.generator import Generator, build_generator
from triolog.tools.bench.kafka.growth_rows import GROWTH
from triolog.tools.bench.kafka.jars import REFERENCE_VERSION, PeerMissingError, kafka_jars
from triolog.tools.bench.kafka.rows import ROWS, benchmark, warm_up
from triolog.tools.bench.measuring.bench import Bench, Scale
from triolog.tools.bench.measuring.child import LoadFailedError
from triolog.tools.bench.measuring.report import Verdict

from tests.support.forwarding import ANY_PORT
from tests.support.kafka_jars import unavailable

TINY: Final = Scale("tiny", 1, 0.0005)
WITH_KAFKA: Final = ("consume", "synced", "forward", "growth-partitions")
"""Rows with figures of all brokers, with a topic of Kafka that syncs, with MirrorMaker, with a Kafka that starts again."""


def bench_in(directory: Path, *, with_peers: bool) -> Bench:
    return Bench(str(directory), TINY, lambda text: None, with_peers)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    try:
        with open_brokers(bench_in(tmp_path_factory.mktemp("alone"), with_peers=False)) as brokers:
            yield brokers
    except PeerMissingError as exc:
        unavailable(str(exc))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in ROWS if name != "fixture"])
def test_a_row_measures_triolog_and_says_who_is_missing(alone: Brokers, name: str) -> None:
    result = benchmark().measure(name, alone)
    assert result.failure == ""
    for line in result.lines:
        assert all(sample > 0 for sample in line.samples), line
        assert line.samples or line.note == "peers are left out", line
    assert [line for line in result.lines if line.samples]
    assert name in GROWTH or [line for line in result.lines if line.target is not None]


@pytest.mark.long
def test_all_brokers_are_measured_in_one_run(tmp_path: Path) -> None:
    try:
        with open_brokers(bench_in(tmp_path, with_peers=True), quick_compiler=True) as brokers:
            if brokers.missing:
                unavailable(str(brokers.missing))
            assert set(brokers.running) == {TRIOLOG, KAFKA, KFAKE}
            assert [version.split()[0] for version in brokers.versions] == ["generator:", "Apache", "kfake"]
            assert f"/kafka_2.13-{REFERENCE_VERSION}.jar" in kafka_jars()
            assert all(broker.idle_mib > 0 for broker in brokers.running.values())
            results = [benchmark().measure(name, brokers) for name in WITH_KAFKA]
    except PeerMissingError as exc:
        unavailable(str(exc))
    for result in results:
        assert result.failure == ""
        assert {line.verdict for line in result.lines if line.target} <= {Verdict.MET, Verdict.MISSED}
        assert any(line.name.endswith("Kafka") and line.samples for line in result.lines)
    assert [list(curve.points) for curve in results[-1].curves] == [[TRIOLOG, KAFKA]] * 4
    assert list(tmp_path.iterdir()) == []


@attrs.frozen
class NotingGenerator(Generator):
    """Runs what it is told to, and says what that was."""

    loads: list[str] = attrs.field(factory=list)

    def run(self, load: str, address: str, **flags: object) -> dict[str, Any]:
        self.loads.append(load)
        return super().run(load, address, **flags)


@pytest.mark.long
def test_every_load_runs_twice_before_anything_counts(alone: Brokers) -> None:
    generator = NotingGenerator(alone.generator.path)
    brokers = attrs.evolve(alone, generator=generator, versions=[])
    warm_up(brokers, ["one-connection", "fixture", "join"], least_s=0)
    assert [load for load in generator.loads if load in ("single", "join")] == ["single"] * 2 + ["join"] * 2
    [said] = brokers.versions
    assert said.startswith("warm: before anything counted, every broker had had every load that is measured 2 times, ")


@pytest.mark.long
def test_a_load_that_fails_says_why(alone: Brokers) -> None:
    with pytest.raises(LoadFailedError, match="no-such-topic has no partitions"):
        alone.run(alone.running[TRIOLOG], "times", "no-such-topic")


def test_without_go_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerMissingError, match="Go is not installed"):
        build_generator()
    result = CliRunner().invoke(command, ["--quick"])
    assert result.exit_code == 1
    assert "Go is not installed" in result.output


@pytest.mark.long
def test_the_command_keeps_a_page_with_machine_and_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)  # or all modules would be compiled anew for this
    try:
        build_generator()
    except PeerMissingError as exc:
        unavailable(str(exc))
    saved = tmp_path / "saved"
    arguments = ["--quick", "--no-peers", "--only", "fixture", "--starts", "2", "--json", "--save", "--save-in", str(saved)]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    [page] = saved.glob("*-kafka.md")
    text = page.read_text()
    assert "Machine: " in text
    assert "- generator: franz-go v" in text
    assert "| median |" in text
    [row] = json.loads(result.stdout)["rows"]
    assert row["title"].startswith("fixture ")
    assert [len(line["samples"]) for line in row["lines"]] == [1, 1, 1]
    assert row["lines"][2]["samples"] == [3.0], "the one that is not timed has a port, too"


SLEEPS = (sys.executable, "-c", "import signal; signal.pause()")


def test_records_that_are_there_are_found_with_what_the_process_took(tmp_path: Path) -> None:
    with triolog.blocking.open(kafka=ANY_PORT, native="127.0.0.1:0") as upstream, running(SLEEPS, tmp_path / "log") as process:
        upstream.create_topic("t")
        upstream.append("t", [b"value"] * 300)
        done = watch(process, upstream.bootstrap_servers, "t", 300)
    assert done.mb_s > 0
    assert done.peak_mib > 1


def test_a_process_that_ends_before_its_records_are_there_is_a_failure_with_what_it_wrote(tmp_path: Path) -> None:
    ends = (sys.executable, "-c", "import sys; sys.exit('no such upstream')")
    with triolog.blocking.open(kafka=ANY_PORT, native="127.0.0.1:0") as upstream:
        with pytest.raises(LoadFailedError, match=r"to t ended with 1: no such upstream"):
            with running(ends, tmp_path / "log") as process:
                watch(process, upstream.bootstrap_servers, "t", 1)


def test_without_librdkafka_rows_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "confluent_kafka" else find(name))
    assert how_to_install("forward") in missing()
