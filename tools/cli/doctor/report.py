"""The report as one zip file: texts and JSON, without secrets, the same bytes for the same content."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import resource
import sys
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ....protocol.errors import RequestError
from ..config import key_rows
from ..terminal.output import printable
from .symptoms import BY_NAME, SYMPTOMS, Symptom

MAX_REPORT_BYTES: Final = 32 * 1024 * 1024
"""Of the texts in a report, before they are compressed. A longer text is cut."""
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of each file in the zip: the earliest one that a zip can have."""
PACKAGES: Final = ("trio", "attrs", "click", "msgpack", "rich", "confluent-kafka", "pyarrow", "duckdb", "prometheus-client")


@attrs.frozen
class Found:
    """A symptom at a directory, a server or in a log."""

    symptom: Symptom
    target: str
    evidence: str

    def as_json(self) -> dict[str, Any]:
        symptom = self.symptom
        return {
            "symptom": symptom.name,
            "is_problem": symptom.is_problem,
            "target": self.target,
            "evidence": self.evidence,
            "reason": symptom.cause,
            "next_step": symptom.next_step,
        }


def checks_of(kinds: Iterable[str], found: Iterable[Found]) -> list[dict[str, Any]]:
    """Every symptom, with the things that were read for it and the result. `kinds` of targets: directory, server, log."""
    names, kinds = {each.symptom.name for each in found}, set(kinds)
    rows = []
    for section, symptoms in SYMPTOMS.items():
        for each in symptoms:
            looked_at = [text for kind in ("directory", "server") if kind in kinds and (text := getattr(each, kind))]
            looked_at += ["the lines of the log"] if each.is_line and "log" in kinds else []
            result = "found" if each.name in names else "not found" if looked_at else "not looked for"
            rows.append({"section": section, "symptom": each.name, "looked_at": looked_at, "result": result})
    return rows


def system() -> dict[str, Any]:
    """Versions and the machine."""
    versions = {}
    for name in ("triolog", *PACKAGES):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": sys.version,
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "packages": versions,
    }


def configuration(config_file: str | None) -> dict[str, Any]:
    """The server's keys as the file and the variables have them, or the error. No key of the server holds a secret."""
    try:
        return {name: {"value": value, "source": source} for name, value, source in key_rows(config_file)}
    except (RequestError, OSError) as exc:
        return {"error": str(exc)}


def in_words(found: Iterable[Found]) -> str:
    """The symptoms as text, problems first."""
    lines = []
    for each in sorted(found, key=lambda each: not each.symptom.is_problem):
        lines += [f"{each.symptom.name}: {each.symptom.line}", f"  at:        {printable(each.target)}"]
        lines.append(f"  evidence:  {printable(each.evidence)}")
        lines += [f"  reason:    {each.symptom.cause}", f"  next step: {each.symptom.next_step}", ""]
    return "\n".join(lines) or "No symptom of docs/troubleshooting.md was found.\n"


def write_report(path: str, parts: Mapping[str, Any]) -> None:
    """Write texts and values of JSON by their names. Raises OSError, also where the file exists."""
    left = MAX_REPORT_BYTES
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream, zipfile.ZipFile(stream, "w") as file:
        for name, part in sorted(parts.items()):
            text = part if isinstance(part, str) else json.dumps(part, indent=1, sort_keys=True) + "\n"
            data = text.encode("utf-8", "backslashreplace")
            if len(data) > left:
                data = data[:left] + b"\n... cut\n"
            left = max(0, left - len(data))
            info = zipfile.ZipInfo(name, EPOCH)
            info.external_attr = 0o600 << 16
            file.writestr(info, data, zipfile.ZIP_DEFLATED, 9)


def named(name: str, target: str, evidence: str) -> Found:
    """The symptom of a name."""
    return Found(BY_NAME[name], target, evidence)
