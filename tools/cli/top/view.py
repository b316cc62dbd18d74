"""Draws one snapshot for `triolog top`: a line for each important item, the busiest topics and APIs, the largest lags."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ..mirroring.status import progress_text, trouble_texts
from ..terminal.output import count_text, printable, size_text, table
from ..terminal.shapes import columns
from ..terminal.times import Zone, duration_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def wear_lines(wear: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(label, text): the process, then each disk that is told of, once."""
    written = wear.get("process_written_bytes")
    if written is not None:
        rates = _rates(wear["process_bytes_per_second"], wear["process_bytes_per_appended_byte"])
        yield "written", f"{size_text(written)} by the process{rates}"
    seen: set[tuple[str, ...]] = set()
    for each in wear["directories"]:
        disks = tuple(each["disks"])
        if disks and disks not in seen:
            seen.add(disks)
            yield "wear", _disk(each)


def _disk(wear: dict[str, Any]) -> str:
    parts = [f"{', '.join(map(printable, wear['disks']))}: "]
    so_far = wear["lifetime_written_bytes"] or wear["disk_written_bytes"]
    parts.append("reports nothing" if so_far is None else f"{size_text(so_far)} written")
    parts.append(_rates(wear["disk_bytes_per_second"], wear["disk_bytes_per_appended_byte"]))
    if wear["life_used_percent"] is not None:
        parts.append(f"; {wear['life_used_percent']} % of its life used")
    if wear["pre_eol"] not in (None, "normal"):
        parts.append(f", blocks in reserve: {printable(wear['pre_eol'])}")
    if wear["days_left"] is not None:
        parts.append(f"; lasts {duration_text(wear['days_left'] * 86_400)}")
    return "".join(parts)


def _rates(per_second: float | None, per_appended: float | None) -> str:
    told = "" if per_second is None else f", {size_text(per_second)}/s"
    return told if per_appended is None else f"{told}, {per_appended:,.2f} x the appended bytes"


LOW_SPACE: Final = 0.1
"""Share of a device that is free, below which it is said in red."""


def view(moment: dict[str, Any], title: str, zone: Zone, *, rows: int) -> RenderableType:
    """Everything; `rows` of each table."""
    from rich.console import Group

    drawn: list[RenderableType] = [_head(moment, title, zone), _topics(moment, rows)]
    if moment["apis"]:
        drawn.append(_apis(moment, rows))
    if moment["lags"]:
        drawn.append(_lags(moment, rows))
    return Group(*drawn)


def _head(moment: dict[str, Any], title: str, zone: Zone) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    clock = datetime.fromtimestamp(moment["time_ms"] / 1000, zone).strftime("%H:%M:%S")
    head = Table.grid(padding=(0, 2))
    head.add_row(Text("triolog", "bold"), Text(f"{title}  {clock}"))
    connections = ", ".join(f"{count:,} {name}" for name, count in sorted(moment["connections"].items())) or "none"
    head.add_row("connections", connections)
    if moment["insecure"]:
        head.add_row(
            "insecure", Text(f"clients that reach {', '.join(map(printable, moment['insecure']))} may do everything", "red")
        )
    errors = moment["errors_per_second"]
    requests = Text(f"{_number(moment['requests_per_second'])}/s, errors ")
    head.add_row("requests", requests.append(f"{_number(errors)}/s", "red" if errors else ""))
    head.add_row(
        "traffic",
        f"in {_bytes(moment['received_bytes_per_second'])}, out {_bytes(moment['sent_bytes_per_second'])}; appended "
        f"{_number(moment['appended_records_per_second'])} records/s, {_bytes(moment['appended_bytes_per_second'])}",
    )
    lag = f"{count_text(moment['lag'], 'record')} in {count_text(moment['groups'], 'group')}"
    head.add_row("lag", lag)
    head.add_row("loss window", loss_window(moment))
    head.add_row("syncs", _syncs(moment))
    wear = moment["wear"] or {"directories": []}
    of_path = {each["path"]: each for each in wear["directories"]}
    for directory in moment["directories"]:
        head.add_row("disk", directory_text(directory, of_path.get(directory["path"])))
    for label, text in wear_lines(wear):
        head.add_row(label, text)
    head.add_row("logs", logs_text(moment))
    for row in mirror_rows(moment["mirrors"], 1):
        head.add_row(*row)
    return head


def loss_window(moment: dict[str, Any]) -> str:
    longest = (moment["wear"] or {}).get("longest_unsynced_ms", 0)
    since = f"; at most {_ms(longest)} since the start" if longest else ""
    if not moment["loss_window_records"]:
        return f"nothing that a power cut could take{since}"
    return f"{count_text(moment['loss_window_records'], 'record')}, the oldest {_ms(moment['loss_window_ms'])} old{since}"


def _syncs(moment: dict[str, Any]) -> RenderableType:
    from rich.text import Text

    text = f"{_number(moment['syncs_per_second'])}/s, p50 {_ms(moment['sync_p50_ms'])}, p99 {_ms(moment['sync_p99_ms'])}"
    failed = moment["failed_syncs"]
    return Text(text).append(f", {failed:,} failed", "red") if failed else Text(text)


def directory_text(directory: dict[str, Any], wear: dict[str, Any] | None) -> RenderableType:
    from rich.text import Text

    path = printable(directory["path"])
    if directory["error"] is not None:
        return Text(f"{path} is out of service: {printable(directory['error'])}", "red")
    free, total = directory["free_bytes"], directory["total_bytes"]
    text = f"{path}: {size_text(free)} of {size_text(total)} free, {count_text(directory['partitions'], 'partition')}"
    if directory["is_refusing"]:
        return Text(f"{text}; appends are refused", "red")
    if wear is not None and wear["full_in_s"] is not None:
        text += f", full in {duration_text(wear['full_in_s'])}"
    return Text(text, "red" if total and free / total < LOW_SPACE else "")


def logs_text(moment: dict[str, Any]) -> RenderableType:
    from rich.text import Text

    topics, partitions = count_text(moment["topic_count"], "topic"), count_text(moment["partitions"], "partition")
    text = Text(f"{size_text(moment['log_bytes'])} in {topics}, {partitions}")
    if moment["partitions_offline"]:
        text.append(f", {moment['partitions_offline']:,} offline", "red")
    if moment["open_transactions"]:
        text.append(f"; {count_text(moment['open_transactions'], 'open transaction')}")
    if moment["waiting_appends"]:
        text.append(f"; {count_text(moment['waiting_appends'], 'append')} waiting")
    if moment["compacting"] is not None:
        text.append(f"; compacting {printable(moment['compacting'])}")
    return text


def mirror_rows(mirrors: list[dict[str, Any]], troubles: int) -> Iterator[tuple[RenderableType, RenderableType]]:
    """(label, text): each mirror, and up to so many of its troubles."""
    from rich.text import Text

    for each in mirrors:
        found = trouble_texts(each)
        yield "mirror", Text(progress_text(each), "red" if each["state"] == "stopped" else "yellow" if found else "")
        for text in found[:troubles]:
            yield "", Text(text, "yellow")
        if (more := len(found) - troubles) > 0:
            yield "", Text(f"{more} more: `triolog mirror` on that machine lists them", "yellow")


# ---- tables ------------------------------------------------------------------------------------------------------------------


def _topics(moment: dict[str, Any], rows: int) -> RenderableType:
    headings = columns("<topic", ">records/s", ">in", ">out", ">records", ">size")
    lines = [
        (
            printable(each["topic"]),
            _number(each["appended_records_per_second"]),
            _bytes(each["appended_bytes_per_second"]),
            _bytes(each["fetched_bytes_per_second"]),
            f"{each['records']:,}",
            size_text(each["size_bytes"]),
        )
        for each in moment["topics"][:rows]
    ]
    return table(headings, lines)


def _apis(moment: dict[str, Any], rows: int) -> RenderableType:
    headings = columns("<call", ">per second", ">errors/s", ">p50", ">p99")
    lines = [
        (
            f"{each['protocol']} {each['api']}",
            _number(each["per_second"]),
            _number(each["errors_per_second"]),
            _ms(each["p50_ms"]),
            _ms(each["p99_ms"]),
        )
        for each in moment["apis"][:rows]
    ]
    return table(headings, lines)


def _lags(moment: dict[str, Any], rows: int) -> RenderableType:
    headings = columns("<group", "<topic", ">partition", ">offset", ">lag")
    lines = [
        (
            printable(each["group"]),
            printable(each["topic"]),
            str(each["partition"]),
            f"{each['offset']:,}",
            f"{each['lag']:,}",
        )
        for each in moment["lags"][:rows]
    ]
    return table(headings, lines)


def _number(value: float) -> str:
    """`0`, `0.3`, `12`, `1,234`."""
    return f"{value:.1f}" if 0 < value < 10 else f"{value:,.0f}"


def _bytes(value: float) -> str:
    return f"{size_text(value)}/s"


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1000:,.1f} s" if value >= 1000 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"
