"""The tables of pages that are made from the code: configuration keys, rights, symptoms, options of Spark's reads and writes.

`python docs/code_tables.py` prints the pages with their tables renewed; `--write` puts them in place. A test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from triolog.protocol.kafka.apis import APIS
from triolog.protocol.native import messages
from triolog.server.config import KEPT_KEYS, TOPIC_KEYS, ConfigKey
from triolog.server.config.broker_config import BROKER_KEYS
from triolog.server.listeners.kafka import guard as kafka_guard
from triolog.server.listeners.native import guard as native_guard
from triolog.tools.cli.doctor.symptoms import SYMPTOMS, page_table
from triolog.tools.forward.settings.forward_settings import FORWARD
from triolog.tools.ingest.settings import FILE_KEYS, INGEST, MAP_KEYS
from triolog.tools.spark.option_table.option import Meaning, Option, OptionTable
from triolog.tools.spark.option_table.reading import READING
from triolog.tools.spark.option_table.writing import WRITING

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


BEGIN: Final = "<!-- {name}: made by docs/code_tables.py -->"
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


def accepted_table(table: OptionTable) -> str:
    """Return the options that have an effect, as a Markdown table."""
    rows = ["| option | default | means | Spark's Kafka source or sink |", "|---|---|---|---|"]
    rows += [
        f"| `{option.name}` | {_cell(option.default)} | {_cell(option.text)} | {_cell(_relation(option))} |"
        for option in table.options.values()
        if option.meaning.is_accepted
    ]
    return "\n".join(rows)


def refused_table() -> str:
    """Return the options of Spark's Kafka source and sink that are refused, by their reason, as a Markdown table."""
    found: dict[tuple[str, Meaning, str], list[str]] = {}
    for table in (READING, WRITING):
        for option in table.options.values():
            if not option.meaning.is_accepted:
                found.setdefault((table.what, option.meaning, option.text), []).append(f"`{option.name}`")
    rows = ["| of | refused | options | why |", "|---|---|---|---|"]
    rows += [
        f"| {what} | {'unless `strictOptions` is `false`' if meaning is Meaning.UNUSED else 'always'} | {', '.join(names)} | "
        f"{_cell(text)} |"
        for (what, meaning, text), names in found.items()
    ]
    return "\n".join(rows)


def _relation(option: Option) -> str:
    return f"different: {option.difference}" if option.meaning is Meaning.DIFFERENT else option.meaning.value


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES: Final[Mapping[str, Callable[[], Mapping[str, str]]]] = {
    "docs/reference/configuration.md": lambda: {
        "server keys": server_table(),
        "topic keys": topic_table(),
        "kept topic keys": kept_table(),
    },
    "docs/forward.md": lambda: {
        "link keys": forward_table(FORWARD.link_keys),
        "forward keys": forward_table(FORWARD.process_keys),
    },
    "docs/edge.md": lambda: {
        "ingest keys": forward_table(INGEST.link_keys),
        "map keys": forward_table(MAP_KEYS),
        "file keys": forward_table(FILE_KEYS),
    },
    "docs/reference/rights.md": lambda: {"native rights": native_table(), "kafka rights": kafka_table()},
    "docs/troubleshooting.md": lambda: {section: page_table(section) for section in SYMPTOMS},
    "docs/spark.md": lambda: {
        "options of reading": accepted_table(READING),
        "options of writing": accepted_table(WRITING),
        "refused options": refused_table(),
    },
}
"""The tables of each page, by name."""


def renewed(page: str, tables: Mapping[str, str]) -> str:
    """Return a page with its tables as the code has them. Raises ValueError when a marker is missing."""
    for name, table in tables.items():
        begin, end = BEGIN.format(name=name), END.format(name=name)
        before, found, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found or not found_end:
            raise ValueError(f"the page lacks {begin} or {end}")
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


if __name__ == "__main__":
    for name, tables in PAGES.items():
        path = Path(name)
        text = renewed(path.read_text(encoding="utf-8"), tables())
        if "--write" in sys.argv:
            path.write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)
