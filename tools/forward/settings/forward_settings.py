"""The settings of a process that forwards, and what its links report."""

from __future__ import annotations

from typing import Final

import attrs

from ....server.config.key import parsed_key
from ..errors import SettingsError
from .link_settings import REQUIRED, LinkSettings, read_name
from .process_settings import LinkKind, ProcessSettings


@attrs.frozen(kw_only=True)
class ForwardSettings(ProcessSettings):
    """Everything that a process needs to know."""

    node: str | None = parsed_key(
        read_name, "string", "Name of this source upstream, part of the groups' names.", shown="the server's cluster id"
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for index, link in enumerate(self.links):
            for other in self.links[:index]:
                _check_apart(link, other)


FORWARD: Final = LinkKind(
    name="forward",
    command=("forward",),
    process_settings=ForwardSettings,
    link_settings=LinkSettings,
    required=REQUIRED,
    gauges={
        "backlog_records": "Records that are not upstream.",
        "backlog_bytes": "Bytes of log that are not upstream, estimated from the size of the log.",
        "backlog_ms": "Age of the last record that is upstream while later ones are not.",
        "records_per_second": "Rate over the last half minute.",
        "bytes_per_second": "Rate of keys, values and headers over the last half minute.",
    },
    counters={
        "records": "Records forwarded.",
        "bytes": "Bytes of their keys, values and headers.",
        "transactions": "Transactions committed upstream, or rounds of acknowledgements.",
        "failures": "Retries of the link after a failure.",
        "lost_records": "Offsets that were gone before they could be forwarded.",
        "avoided_records": "Records that would have come twice upstream without transactions.",
        "dead_letter_records": "Records that went to the dead-letter topic.",
    },
    package="confluent_kafka",
    extra="forward",
)


read_file, read_link = FORWARD.read_file, FORWARD.read_link


def _check_apart(link: LinkSettings, other: LinkSettings) -> None:
    same = set(link.topics) & set(other.topics)
    if same and link.to == other.to and link.target == other.target and "{link}" not in link.target:
        raise SettingsError(
            f"links {other.name} and {link.name} would both send {sorted(same)[0]} to the same topic at "
            f"{link.to}. Give one another `target`"
        )
