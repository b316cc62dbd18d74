from __future__ import annotations

import pytest
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.forward.options import open_source
from triolog.tools.forward.errors import SourceFailedError
from triolog.tools.forward.settings.forward_settings import ForwardSettings, read_link
from triolog.tools.forward.settings.link_settings import Secret

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
