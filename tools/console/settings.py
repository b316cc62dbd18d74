"""Settings of a console."""

from __future__ import annotations

import attrs

from ...server.config.values import Address
from ..client.login import LoginConfig
from ..client.tls import TlsConfig


@attrs.frozen(kw_only=True)
class ConsoleSettings:
    """`triolog console`'s options. `login`: in whose name everybody looks; None where the server wants nobody, or each user
    logs in. `parent`: the process with which it ends; `listen_fd`: a socket of its that listens already."""

    server: tuple[str, int]
    listen: Address
    allow_changes: bool = False
    control: Address | None = None
    control_token: str | None = attrs.field(default=None, repr=False)
    forward_state_dir: str | None = None
    tls: TlsConfig | None = None
    login: LoginConfig | None = None
    parent: int | None = None
    listen_fd: int | None = None
