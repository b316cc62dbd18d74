from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.forward.options import open_source
from triolog.tools.forward.errors import SourceFailedError
from triolog.tools.forward.settings.forward_settings import ForwardSettings, read_link
from triolog.tools.forward.settings.secrets import Secret

from tests.support.forwarding import ANY_PORT, FOR_EVER, TOPIC, Forwarding
from tests.tools.cli.conftest import call
from tests.tools.forward.test_delivery import numbered


def sent(directory: Path, upstream: BlockingBroker, state_dir: Path, *more: str) -> Result:
    """`triolog forward --from-dir`."""
    return call(
        *("forward", "--from-dir", directory, "--to", upstream.bootstrap_servers, "--topics", TOPIC, "--link", "link"),
        *("--drain", "--state-dir", state_dir, *more),
    )


def send(directory: Path, upstream: BlockingBroker, state_dir: Path) -> str:
    """Send what must be sent."""
    result = sent(directory, upstream, state_dir)
    assert result.exit_code == 0, result.output
    return result.stderr


def filled(directory: Path, upstream: BlockingBroker, *, forwarded: int = 0, total: int = 100) -> None:
    """A server's directory with one topic, of which a link has sent the first records."""
    with BlockingBroker(directory, native=ANY_PORT, config={**FOR_EVER, "segment.bytes": "4096"}) as source:
        source.create_topic(TOPIC, 2)
        pair = Forwarding(source, upstream)
        if forwarded:
            pair.append(numbered(0, forwarded))
            link = pair.link(drain=True)
            link._node = None
            link.run()
        for first in range(forwarded, total, 10):
            pair.append(numbered(first, first + 10))
        pair.append([b"other"], partition=1)


def test_it_goes_on_where_the_dead_server_s_link_was(tmp_path: Path, upstream: BlockingBroker) -> None:
    filled(tmp_path / "data", upstream, forwarded=30)
    send(tmp_path / "data", upstream, tmp_path / "state")
    assert upstream.log(TOPIC).values(0) == numbered(0, 100)


def test_what_the_dead_server_had_noted_counts_where_the_upstream_has_forgotten(
    tmp_path: Path, upstream: BlockingBroker
) -> None:
    filled(tmp_path / "data", upstream, forwarded=30)
    upstream.delete_topic(TOPIC)
    upstream.create_topic(TOPIC, 2)
    assert "as noted in the source" in send(tmp_path / "data", upstream, tmp_path / "state")
    assert upstream.log(TOPIC).values(0) == numbered(30, 100)


def test_a_directory_goes_upstream_whole_and_once_and_stays_as_it_is(tmp_path: Path, upstream: BlockingBroker) -> None:
    def content() -> dict[str, bytes]:
        found = {str(path): path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
        return {path: data for path, data in found.items() if not path.endswith(".lock")}

    filled(tmp_path / "data", upstream)
    before = content()
    for _ in range(2):
        send(tmp_path / "data", upstream, tmp_path / "state")
        assert upstream.log(TOPIC).values(0) == numbered(0, 100)
        assert upstream.log(TOPIC).values(1) == [b"other"]
    assert content() == before


def test_a_damaged_batch_is_a_gap_that_the_upstream_is_told_of(tmp_path: Path, upstream: BlockingBroker) -> None:
    filled(tmp_path / "data", upstream)
    segment = sorted((tmp_path / "data" / f"{TOPIC}-0").glob("*.log"))[0]
    data = bytearray(segment.read_bytes())
    data[100] ^= 0xFF
    segment.write_bytes(data)
    assert "is damaged and is passed over" in send(tmp_path / "data", upstream, tmp_path / "state")
    records = upstream.log(TOPIC).records(0)
    assert [record.value for record in records] == numbered(10, 100)
    assert records[0].headers == (("triolog.gap", b"0-9"),)


def test_a_directory_that_a_server_uses_is_refused_and_so_is_an_upstream_that_does_not_note_how_far_it_is(
    tmp_path: Path, upstream: BlockingBroker
) -> None:
    with BlockingBroker(tmp_path / "data", config=FOR_EVER) as source:
        source.create_topic(TOPIC)
        assert sent(tmp_path / "data", upstream, tmp_path / "state").exit_code == 3
    assert sent(tmp_path / "data", upstream, tmp_path / "state", "--delivery", "at-least-once").exit_code == 2
    assert TOPIC not in upstream.topics()


LINK = read_link("the test", {"name": "a", "to": "there:9092", "topics": ["t"]})


def test_a_link_logs_in_with_the_password_as_it_is_then(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1}
    with BlockingBroker(users={"edge": "secret"}, topics=["t"], security=keys) as broker:
        for password in (None, Secret("variable", "EDGE")):
            settings = ForwardSettings(server=Address(*broker.native), links=(LINK,), user="edge", password=password)
            variable = "TRIOLOG_PASSWORD" if password is None else "EDGE"
            monkeypatch.setenv(variable, "an older secret")
            with open_source(settings, None) as opener:
                source = opener()
                with pytest.raises(SourceFailedError, match="invalid credentials") as caught:
                    source.topics()
                assert "secret" not in str(caught.value)
                monkeypatch.setenv(variable, "secret")
                assert list(source.topics()) == ["t"]
                source.close()
                monkeypatch.delenv(variable)
                source = opener()
                with pytest.raises(SourceFailedError, match="the password of edge cannot be read from its variable"):
                    source.topics()
                source.close()
