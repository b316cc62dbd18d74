from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from triolog.protocol.native.messages import NewTopic
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.producer import BlockingProducer

from tests.support.forwarding import TOPIC, until
from tests.support.server_process import ServerFolder, ServerProcess
from tests.tools.cli.conftest import call


def keys(folder: Path, upstream: BlockingBroker) -> str:
    file = folder / "server.toml"
    file.write_text(
        f'[forward_process]\nstate_dir = "{folder}/links"\n\n[[forward]]\nname = "link"\n'
        f'to = "{upstream.bootstrap_servers}"\ntopics = ["{TOPIC}"]\nmax_delay_ms = 20\n'
    )
    return str(file)


def produce(server: ServerProcess, *values: bytes) -> None:
    with BlockingClient(server.address) as client:
        with suppress(Exception):
            BlockingAdmin(client).create_topics([NewTopic(TOPIC, 1)])
        with BlockingProducer(client) as producer:
            for value in values:
                producer.send(TOPIC, value=value)
            producer.flush()


def child_of(folder: Path) -> int:
    lock = folder / "links" / "link" / "lock"
    until(lambda: lock.exists() and lock.read_text().strip(), "the child")
    return int(lock.read_text())


def is_alive(process: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for(upstream: BlockingBroker, *values: bytes) -> None:
    until(lambda: TOPIC in upstream.topics() and upstream.log(TOPIC).values(0) == list(values), f"{values} upstream")


def test_a_child_ends_when_its_server_was_killed(tmp_path: Path, upstream: BlockingBroker) -> None:
    with ServerFolder(tmp_path) as folder:
        server = folder.start("--config", keys(tmp_path, upstream))
        child = child_of(tmp_path)
        server.kill()
        until(lambda: not is_alive(child), "the end of the child")


def test_links_that_make_no_sense_are_refused_before_anything_is_served(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('[[forward]]\nname = "link"\nto = "a:1"\ntopic = "t"\n')
    result = call("serve", "--data-dir", tmp_path / "data", "--config", file)
    assert result.exit_code == 2
    assert "[[forward]] link: unknown key 'topic'; known are name, to, topics" in result.stderr.replace("\n", " ")
