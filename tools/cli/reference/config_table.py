"""The tables of configuration keys in docs/reference/configuration.md, made from the code.

`python -m triolog.tools.cli.reference.config_table` prints the page with its tables renewed; `--write` puts it in
place. A test compares the two.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from ....server.config import KEPT_KEYS, TOPIC_KEYS
from ....server.settings.broker_config import BROKER_KEYS

BEGIN: Final = "<!-- {name}: made by triolog.tools.cli.reference.config_table -->"
END: Final = "<!-- end of {name} -->"


def server_table() -> str:
    """Keys of the server, as a Markdown table."""
    rows = ["| key | variable | type | default | unit | meaning |", "|---|---|---|---|---|---|"]
    rows += [
        f"| `{key.name}` | `TRIOLOG_{key.name.upper()}` | {key.type} | `{key.default}` | {key.unit} | {key.doc} |"
        for key in BROKER_KEYS.values()
    ]
    return "\n".join(rows)


def topic_table() -> str:
    """Keys of topics, as a Markdown table."""
    rows = ["| key | type | default | unit | valid | meaning |", "|---|---|---|---|---|---|"]
    rows += [
        f"| `{key.name}` | {key.type} | `{key.write(key.default)}` | {key.unit} | {key.valid} | {key.doc} |"
        for key in TOPIC_KEYS.values()
    ]
    return "\n".join(rows)


def kept_table() -> str:
    """Kafka's topic keys that are kept and have no effect, as a Markdown table."""
    rows = ["| key | type | default | valid | why it has no effect |", "|---|---|---|---|---|"]
    rows += [
        f"| `{key.name}` | {key.type} | `{key.write(key.default)}` | {key.valid} | {key.doc} |" for key in KEPT_KEYS.values()
    ]
    return "\n".join(rows)


def renewed(page: str) -> str:
    """The page with its tables as the code has them. Raises ValueError when a marker is missing."""
    tables = {"server keys": server_table(), "topic keys": topic_table(), "kept topic keys": kept_table()}
    for name, table in tables.items():
        begin, end = BEGIN.format(name=name), END.format(name=name)
        before, found, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found or not found_end:
            raise ValueError(f"the page lacks {begin} or {end}")
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


if __name__ == "__main__":
    path = Path("docs/reference/configuration.md")
    text = renewed(path.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        path.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
