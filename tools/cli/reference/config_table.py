"""The tables of configuration keys in docs/reference/configuration.md, docs/forward.md and docs/edge.md, and those of rights in
docs/reference/rights.md, made from the code.

`python -m triolog.tools.cli.reference.config_table` prints the pages with their tables renewed; `--write` puts them in
place. A test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from ....protocol.kafka.apis import APIS
from ....protocol.native import messages
from ....server.config import KEPT_KEYS, TOPIC_KEYS, ConfigKey
from ....server.config.broker_config import BROKER_KEYS
from ....server.listeners.kafka import guard as kafka_guard
from ....server.listeners.native import guard as native_guard
from ...forward.settings.forward_settings import FORWARD
from ...ingest.settings import FILE_KEYS, INGEST, MAP_KEYS

HEAD = ("| call | needs | leaves out |", "|---|---|---|")
NOTHING = "nothing"


def native_table() -> str:
    """Calls of the native protocol, as a Markdown table. KeyError when one has no rules."""
    rows = []
    for api, request in messages.REQUESTS.items():
        rules = native_guard.RULES[request]
        each = [] if rules.each is None else [f"each: {rules.each.says}"]
        rows.append(_row(f"`{api}`", [*(rule.says for rule in rules.whole), *each], _hidden(rules.hide or rules.sees)))
    return "\n".join((*HEAD, *rows))


def kafka_table() -> str:
    """APIs of Kafka's protocol, as a Markdown table. KeyError when one has no rules."""
    rows = []
    for api in sorted(APIS.values(), key=lambda api: api.name):
        if api.key in kafka_guard.FREE:
            rows.append(_row(api.name, [], ""))
            continue
        itself = kafka_guard.BY_THEMSELVES.get(api.key)
        rules = kafka_guard.Rules() if itself and api.key not in kafka_guard.RULES else kafka_guard.RULES[api.key]
        each = [] if rules.each is None else [f"each: {rules.each.says}"]
        needs = [*(rule.says for rule in rules.whole), *([itself] if itself else []), *each]
        rows.append(_row(api.name, needs, _hidden(rules.hide)))
    return "\n".join((*HEAD, *rows))


def _hidden(function: Callable[..., object] | None) -> str:
    return "" if function is None else (function.__doc__ or "").removeprefix("Hide ").removesuffix(".")


def _row(name: str, needs: Iterable[str], hidden: str) -> str:
    return f"| {name} | {'; '.join(needs) or NOTHING} | {hidden} |"


BEGIN: Final = "<!-- {name}: made by triolog.tools.cli.reference.config_table -->"
END: Final = "<!-- end of {name} -->"


def server_table() -> str:
    """Keys of the server, as a Markdown table."""
    rows = ["| key | variable | type | default | unit | meaning |", "|---|---|---|---|---|---|"]
    rows += [
        f"| `{key.name}` | `TRIOLOG_{key.name.upper()}` | {key.type} | `{key.default_text}` | {key.unit} | {key.doc} |"
        for key in BROKER_KEYS.values()
    ]
    return "\n".join(rows)


def topic_table() -> str:
    """Keys of topics, as a Markdown table."""
    rows = ["| key | type | default | unit | valid | meaning |", "|---|---|---|---|---|---|"]
    rows += [
        f"| `{key.name}` | {key.type} | `{key.default_text}` | {key.unit} | {key.valid} | {key.doc} |"
        for key in TOPIC_KEYS.values()
    ]
    return "\n".join(rows)


def kept_table() -> str:
    """Kafka's topic keys that are kept and have no effect, as a Markdown table."""
    rows = ["| key | type | default | valid | why it has no effect |", "|---|---|---|---|---|"]
    rows += [f"| `{key.name}` | {key.type} | `{key.default_text}` | {key.valid} | {key.doc} |" for key in KEPT_KEYS.values()]
    return "\n".join(rows)


def forward_table(keys: Mapping[str, ConfigKey]) -> str:
    """Keys of links, or of the process that forwards, as a Markdown table."""
    rows = ["| key | type | default | unit | meaning |", "|---|---|---|---|---|"]
    rows += [f"| `{key.name}` | {key.type} | `{key.default_text}` | {key.unit} | {key.doc} |" for key in keys.values()]
    return "\n".join(rows)


def renewed(page: str) -> str:
    """The page of configuration with its tables as the code has them. Raises ValueError when a marker is missing."""
    return _renewed(page, {"server keys": server_table(), "topic keys": topic_table(), "kept topic keys": kept_table()})


def renewed_forward(page: str) -> str:
    """The same for the page of links."""
    return _renewed(page, {"link keys": forward_table(FORWARD.link_keys), "forward keys": forward_table(FORWARD.process_keys)})


def renewed_ingest(page: str) -> str:
    """The same for the page with ingest."""
    return _renewed(
        page,
        {
            "ingest keys": forward_table(INGEST.link_keys),
            "map keys": forward_table(MAP_KEYS),
            "file keys": forward_table(FILE_KEYS),
        },
    )


def renewed_rights(page: str) -> str:
    """The same for the page of rights."""
    return _renewed(page, {"native rights": native_table(), "kafka rights": kafka_table()})


def _renewed(page: str, tables: Mapping[str, str]) -> str:
    for name, table in tables.items():
        begin, end = BEGIN.format(name=name), END.format(name=name)
        before, found, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found or not found_end:
            raise ValueError(f"the page lacks {begin} or {end}")
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


PAGES: Final = {
    "docs/reference/configuration.md": renewed,
    "docs/forward.md": renewed_forward,
    "docs/edge.md": renewed_ingest,
    "docs/reference/rights.md": renewed_rights,
}

if __name__ == "__main__":
    for name, renew in PAGES.items():
        path = Path(name)
        text = renew(path.read_text(encoding="utf-8"))
        if "--write" in sys.argv:
            path.write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)
