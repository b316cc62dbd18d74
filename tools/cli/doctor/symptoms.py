"""The symptoms of docs/troubleshooting.md: the line or the event, the reason, the next step, and where `doctor` looks for it.

This table is the only source: `docs/code_tables.py` makes the tables of the page from it. In `line` three dots stand for a
value. Lines are looked for in the log, in the errors of a connection and in the findings of `verify`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final

import attrs

VALUE: Final = "..."
_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")


@attrs.frozen
class Symptom:
    """A row of the page. `directory` and `server` are the things that a check reads there; empty without a check."""

    name: str
    line: str
    """A line of the log or of a command; or, without `VALUE`, an event in plain words."""
    reason: str
    todo: str
    directory: str = attrs.field(default="", kw_only=True)
    server: str = attrs.field(default="", kw_only=True)

    @property
    def is_line(self) -> bool:
        return VALUE in self.line

    @property
    def is_problem(self) -> bool:
        """Return False for an event that needs no action."""
        return not self.todo.startswith("Nothing")

    @property
    def next_step(self) -> str:
        """`todo` without the marks of Markdown."""
        return _LINK.sub(r"\1", self.todo).replace("`", "")

    @property
    def cause(self) -> str:
        """`reason` without the marks of Markdown."""
        return _LINK.sub(r"\1", self.reason).replace("`", "")


# fmt: off
SYMPTOMS: Final[Mapping[str, tuple[Symptom, ...]]] = {
    "The server does not start": (
        Symptom("directory-locked", "another server (...) holds the lock of log directory .... Stop it first, or choose another directory",
            "Another triolog or Kafka uses the directory.", "Stop the process that the line names. Processes of one program can [share a directory](reference/embedded.md#several-processes)."),
        Symptom("port-taken", "cannot listen on ...: ...",
            "Another process has the port, or the address is not on this machine.", "`ss -ltnp` shows the process. Port 0 lets the system choose."),
        Symptom("newer-format", "... has format version ..., known is ...: a newer triolog wrote it",
            "The directory comes from a newer triolog.", "Install that version again: [upgrading](upgrading.md).",
            directory="topics.json and the other small files"),
        Symptom("extra-missing", "--metrics needs ...: ...",
            "The package of an extra is missing.", "[Install the extra](install.md#extras)."),
        Symptom("configuration-wrong", "The configuration is wrong",
            "A file, a `TRIOLOG_*` variable or an argument has a key or a value that the server refuses.", "Correct it: `triolog config show` checks the file and the variables.",
            directory="--config FILE and the variables TRIOLOG_*"),
        Symptom("files-unreadable", "A file or a directory cannot be read",
            "The user may not read it, or the device returns an error.", "Run the command as the user of the server. Check the device.",
            directory="every name that is listed or read"),
        Symptom("killed", "The clean marker is missing",
            "The server was killed, or the machine lost power.", "Nothing: the next start checks the logs.",
            directory=".kafka_cleanshutdown, while no server has the directory"),
    ),
    "A client does not connect": (
        Symptom("no-connection", "no connection to ...: .... ...",
            "No server listens at this address, or it does not respond.", "Start it, or name its address with `--server` or `TRIOLOG_SERVER`.",
            server="a connection, and the response to statistics"),
        Symptom("kafka-port", "Is ... the port for Kafka clients? Commands use the native one: --server ...:9095",
            "The command went to the Kafka port.", "Use the native port.",
            server="the protocol of the port"),
        Symptom("login-failed", "login failed: ... as ... by ...: ...",
            "Wrong user, password or mechanism.", "Compare the client's SASL settings with [security](operations/security.md).",
            server="statistics: security.failed_logins"),
        Symptom("tls-failed", "TLS handshake with ... failed: ...",
            "The client speaks no TLS, or does not trust the certificate.", "Check `security.protocol` and the CA file of the client.",
            server="statistics: security.failed_handshakes"),
        Symptom("denied", "denied: ... at ... may not ... ... ...",
            "No ACL allows the operation.", "Add the ACL: [rights](reference/rights.md) says which one.",
            server="statistics: security.denied"),
        Symptom("advertised-wrong", "A Kafka client connects and then hangs",
            "The server sends clients to an address that they cannot reach.", "Set `kafka_advertised` to an address that clients reach.",
            server="a connection to each address that a Kafka port returns"),
    ),
    "Appends fail": (
        Symptom("disk-full", "...: ... bytes free, below ...=...: refusing appends",
            "The disk, or all logs together, reached the bound.", "Free space, or set [`disk.full.policy=drop-oldest`](operations/space.md#a-full-disk).",
            directory="free bytes of the device, and disk_reserve_bytes", server="statistics: directories, log_bound"),
        Symptom("space-again", "... has space now: opened from ..., accepting appends",
            "Space is free again.", "Nothing."),
        Symptom("unknown-key", "topic ... configured with ...: unknown keys, stored without effect",
            "The topic has a key that this version does not know.", "Correct the key with `triolog topics alter`.",
            directory="topics.json"),
        Symptom("out-of-service", "log directory ... is out of service: ...",
            "The device or its mount failed. A log whose device failed is offline.", "Check the device, then restart the server.",
            server="statistics: directories, total.offline, disk.failed_syncs"),
    ),
    "Records are missing, or readers stop": (
        Symptom("gap", "...: offsets ... to ... are lost, their bytes are in ...",
            "Corruption. The server moved the batch out of the log.", "[Missing offsets](operations/gaps.md). Check the device.",
            directory="quarantine-checkpoint of each partition", server="statistics: total.open_gaps"),
        Symptom("ends-early", "... ends at offset ... but once reached offset ...: offsets ... to ... are lost",
            "A power cut took records that were not synced.", "Choose `fsync`: [durability](operations/durability.md).",
            directory="quarantine-checkpoint of each partition, checkpoints of the directory"),
        Symptom("damaged", "`triolog verify` reports damage",
            "The device or a program has changed or removed files.", "Stop the server. `triolog repair DIR --dry-run` shows the repairs, `triolog repair DIR` does them.",
            directory="verify of the partitions", server="statistics: scrub.damages"),
        Symptom("scrub-unreadable", "...: scrubbing could not read .... Check the device",
            "The device returned an error for old data.", "Back up, then replace the device."),
        Symptom("segments-dropped", "...: dropped ... segments, from offset ... on",
            "The disk was full, and `drop-oldest` deleted the oldest segments.", "Lower the retention, or add space.",
            server="statistics: given_up_segments"),
        Symptom("transaction-aborted", "aborting transaction ...: it was open for more than ... ms",
            "A producer died in a transaction. Readers with `read_committed` waited for it.", "Nothing, or lower `transaction.timeout.ms`."),
        Symptom("transaction-hangs", "Readers with `read_committed` stop at a transaction that does not end",
            "No transactional id has the transaction open, so no client will end it.", "`triolog transactions producers TOPIC --open` shows it, `triolog transactions abort` ends it.",
            server="open transactions of the producers of each topic"),
        Symptom("clock-implausible", "clock implausible: wall_clock=...",
            "The clock is before the newest record or the date of this version, or was set back.", "Fix the time service; [clocks](operations/space.md#clocks).",
            directory="the clock, clock.json, times of files", server="statistics: clock"),
        Symptom("clock-jumped", "clock jumped ahead: wall_clock=...",
            "A time service has set a wrong clock, or something a right one.", "Nothing, or set the clock within the hour.",
            server="statistics: clock"),
        Symptom("retention", "Old records disappear without a line",
            "A topic deletes records after seven days, unless its `retention.ms` says otherwise.", "Nothing, or set the key: `triolog topics describe NAME` shows `retention.ms`.",
            directory="log-start-offset-checkpoint of topics without retention.ms", server="statistics: retention.taken_segments"),
    ),
    "Groups rebalance, or consumers repeat records": (
        Symptom("session-timed-out", "member ... of group ... removed: session timed out",
            "The member sent no heartbeat within `session.timeout.ms`.", "Process less between polls, or raise the timeout."),
        Symptom("poll-timed-out", "member ... of group ... removed: it did not join in time",
            "The member was busy for longer than `max.poll.interval.ms`.", "Lower `max.poll.records`, or raise the interval."),
        Symptom("rebalance", "group ... rebalances after generation ...: ...",
            "A member joined or left.", "Nothing, unless it happens often."),
        Symptom("offsets-expired", "... committed offsets have expired",
            "The group was empty for longer than `offsets_retention_ms`.", "Raise it, or run the group more often."),
        Symptom("lag", "The lag of a group only rises",
            "No member reads the partition, or the members are slower than the producers.", "Start or add members: `triolog groups describe GROUP` shows them.",
            server="statistics: groups.lags of 10,000 records and more"),
    ),
    "The stop is not clean": (
        Symptom("stop-too-slow", "shutdown is not clean: not everything was written within ... ms",
            "The device was slow. The next start recovers.", "Raise `stop_timeout_ms`."),
        Symptom("stop-failed", "shutdown is not clean: ...",
            "An error at the stop, named in the line. The next start recovers.", "Check the device."),
        Symptom("bug", "unhandled exception: ...",
            "An unhandled exception. The other parts continue.", "Report it with the file of `triolog doctor`.",
            server="statistics: protocols.*.bugs"),
    ),
}
# fmt: on
"""By the headings of the page."""
BY_NAME: Final = {each.name: each for rows in SYMPTOMS.values() for each in rows}


@functools.cache
def _lines() -> list[tuple[list[str], Symptom]]:
    """The texts between the values of each line. The line with the longest texts comes first: it says most."""
    lines = [(each.line.split(VALUE), each) for each in BY_NAME.values() if each.is_line]
    return sorted(lines, key=lambda line: -sum(map(len, line[0])))


def symptom_of(text: str) -> Symptom | None:
    """Return the symptom that a line of a log, or a message, is; None for any other line."""
    return next((symptom for parts, symptom in _lines() if _has_parts(text, parts)), None)


def _has_parts(text: str, parts: list[str]) -> bool:
    """Return whether a text has all parts in their order, with a value between two. In linear time: clients choose values."""
    end = 0
    for number, part in enumerate(parts):
        found = text.find(part, end + (number > 0))
        if found < 0:
            return False
        end = found + len(part)
    return True


def page_table(section: str) -> str:
    """The rows of a section as a Markdown table."""
    rows = ["| line or event | reason | what to do |", "|---|---|---|"]
    for each in SYMPTOMS[section]:
        rows.append(f"| {f'`{each.line}`' if each.is_line else each.line} | {each.reason} | {each.todo} |")
    return "\n".join(rows)
