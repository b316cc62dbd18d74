"""SIGHUP: a process that forwards reads its file again, by hand and under a server."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from triolog.tools.forward.process.place import CONTROL, ask

from tests.support.forwarding import TOPIC, Forwarding, forwarding, until
from tests.support.server_process import ServerFolder, ServerProcess
from tests.tools.cli.forward.test_command import running
from tests.tools.forward.process.test_control import child_of, is_alive, keys, produce, wait_for

pytestmark = pytest.mark.merge  # each test starts forwarders as processes

OTHER = "alarms"


def state(folder: Path, link: str) -> dict[str, Any]:
    return ask(str(folder / link / CONTROL), {"command": "status"}, 10)


def number(folder: Path, link: str) -> int:
    """Of the file that is a link's socket: another one when the link has begun anew."""
    return (folder / link / CONTROL).stat().st_ino


def write(file: Path, pair: Forwarding, *links: str, more: str = "") -> None:
    """Links by name, with what is special of each behind a colon."""
    tables = []
    for link in links:
        name, _, special = link.partition(":")
        tables.append(
            f'[[forward]]\nname = "{name}"\nto = "{pair.upstream.bootstrap_servers}"\ntopics = ["{TOPIC}"]\n'
            f'target = "{name}.{{topic}}"\nmax_delay_ms = 20\n{special}\n'
        )
    file.write_text(f'server = "{pair.source.native}"\nnode = "node"\nstate_dir = "{file.parent}"\n{more}\n' + "".join(tables))


def test_links_that_are_added_changed_or_removed_are_taken_up_and_others_left_alone(tmp_path: Path) -> None:
    file, log = tmp_path / "forward.toml", tmp_path / "stderr"
    with forwarding() as pair:
        pair.source.create_topic(TOPIC)
        pair.append([b"a"])
        write(file, pair, "same", "changed", "removed")
        with running(tmp_path, "--config", str(file)) as process:
            until(lambda: all(state(tmp_path, each)["records"] for each in ("same", "changed", "removed")), "the record")
            before = number(tmp_path, "same")
            write(file, pair, "same", 'changed:compression = "gzip"', "added", more='metrics = "127.0.0.1:0"')
            process.send_signal(signal.SIGHUP)
            until(lambda: (tmp_path / "added" / CONTROL).exists() and state(tmp_path, "added")["records"], "the new link")
            assert not (tmp_path / "removed" / CONTROL).exists()
            assert (number(tmp_path, "same"), state(tmp_path, "same")["records"]) == (before, 1)
            pair.append([b"b"])
            for name in ("same", "changed", "added"):
                until(lambda each=name: pair.values(f"{each}.{TOPIC}") == [b"a", b"b"], name)
            assert pair.values(f"removed.{TOPIC}") == [b"a"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    said = log.read_text()
    assert "link changed starts again: compression" in said
    assert "needs a restart: metrics is 127.0.0.1:0, was None" in said


def test_a_file_that_makes_no_sense_changes_nothing_and_a_link_that_has_failed_begins_anew(tmp_path: Path) -> None:
    file, log = tmp_path / "forward.toml", tmp_path / "stderr"
    with forwarding() as pair:
        pair.source.create_topic(TOPIC)
        write(file, pair, "link", "other")
        good = file.read_text()
        with running(tmp_path, "--config", str(file)) as process:
            before = number(tmp_path, "link")
            for text, reason in (
                ("[[forward]]\nname = 1", "name: 1 is not a name"),
                ("[[forward]", "is not TOML"),
                ("", "there is no link"),
            ):
                file.write_text(text)
                process.send_signal(signal.SIGHUP)
                until(lambda reason=reason: reason in log.read_text(), "the refusal")
            until(lambda: log.read_text().count("no link changed") == 3, "the last refusal")
            pair.append([b"a"])
            until(lambda: state(tmp_path, "link")["records"], "the record")
            assert number(tmp_path, "link") == before
            second = pair.link(name="link", target="link.{topic}", drain=True)
            pair.append([b"b"])
            second.run()
            pair.append([b"c"])
            until(lambda: state(tmp_path, "link")["state"] == "failed", "that it was fenced")
            file.write_text(good)
            process.send_signal(signal.SIGHUP)
            until(lambda: pair.values(f"link.{TOPIC}") == [b"a", b"b", b"c"], "the other record")


def scraped(server: ServerProcess) -> str:
    address = json.loads(server.ready_file.read_text())["metrics"]
    text: str = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
    return text


def test_a_servers_links_are_read_again_and_seen_in_its_metrics_and_their_child_comes_back_and_ends_with_it(
    tmp_path: Path,
) -> None:
    with forwarding() as pair, ServerFolder(tmp_path) as folder:
        upstream = pair.upstream
        file = Path(keys(tmp_path, upstream))
        server = folder.start("--config", str(file), "--metrics", "127.0.0.1:0")
        produce(server, b"a")
        wait_for(upstream, b"a")
        until(lambda: 'triolog_forward_records_total{link="link"} 1.0' in scraped(server), "the link in the metrics")
        assert 'triolog_forward_state{link="link",state="running"} 1.0' in scraped(server)
        child = child_of(tmp_path)

        good = file.read_text()
        file.write_text(good.replace("max_delay_ms", "max_delay"))
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: "no setting changed" in server.stderr(), "the refusal")
        assert "unknown key 'max_delay'" in server.stderr()

        second = good[good.index("[[forward]]") :].replace('"link"', '"second"').replace(TOPIC, OTHER)
        file.write_text(good + second)
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: 'triolog_forward_state{link="second",state="running"} 1.0' in scraped(server), "the second link")
        assert child_of(tmp_path) == child

        os.kill(child, signal.SIGKILL)
        until(lambda: not is_alive(child), "its end")
        assert 'triolog_forward_state{link="link",state="not running"} 1.0' in scraped(server)
        produce(server, b"b")
        wait_for(upstream, b"a", b"b")

        second_child = child_of(tmp_path)
        assert server.stop() == 0
        assert not is_alive(second_child)
        assert "starting again in" in server.stderr()


def test_links_that_a_server_did_not_begin_with_need_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("")
    with ServerFolder(tmp_path) as folder:
        server = folder.start("--config", str(file))
        file.write_text('[[forward]]\nname = "a"\nto = "a:1"\ntopics = ["t"]\n')
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: "needs a restart: [[forward]] is new" in server.stderr(), "the word")


def test_a_child_that_has_ended_for_good_begins_again(tmp_path: Path) -> None:
    with forwarding() as pair, ServerFolder(tmp_path) as folder:
        file = Path(keys(tmp_path, pair.upstream))
        good = file.read_text()
        server = folder.start("--config", str(file))
        child = child_of(tmp_path)
        file.write_text(good.replace('name = "link"', 'name = "li nk"'))  # which a child that begins would refuse
        os.kill(child, signal.SIGKILL)
        until(lambda: "send SIGHUP to start it again" in server.stderr(), "the end of the children")
        file.write_text(good)
        os.kill(server.pid, signal.SIGHUP)
        produce(server, b"a")
        wait_for(pair.upstream, b"a")
