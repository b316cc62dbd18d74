"""Keep secrets and contents of records out of a report. Every text of a report passes `Redaction.clean`.

Three nets, one after the other: the report has chosen fields only; texts that look like secrets are replaced, whatever their
origin; and so is every secret that the process can know: the values of variables and keys with the name of a secret, and the
contents of the files that the configuration names as secret.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

MAX_TEXT_CHARS: Final = 8 * 1024
MAX_ENTRIES: Final = 1_000
"""Of a list or a map of a report. The report says how many are left out."""
MAX_SECRET_FILE_BYTES: Final = 1024 * 1024
LEAST_SECRET_CHARS: Final = 4
"""A shorter word is part of too many others."""
REDACTED: Final = "***"

_SECRET: Final = (
    r"passw(?:or)?d|passphrase|passcode|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key|ssl[._]key"
    r"|jaas|authorization|oauthbearer\.config|assertion|cookie|stored_?key|server_?key|salt|\.pem|user[._]info"
    r"|(?<![a-z])(?:pass|pwd)(?![a-z])"
)
_NAME: Final = re.compile(_SECRET, re.IGNORECASE)
_SECRET_FILE: Final = re.compile(r"(?:users|token|password|secret|key)_file$", re.IGNORECASE)
_PUBLIC: Final = frozenset(
    {"", "true", "false", "not set", "none", "null", "-", "password", *(f"scram-sha-{n}" for n in (256, 512))}
)
_LOOKS_SECRET: Final = tuple(
    (re.compile(pattern, flags), replacement)
    for pattern, replacement, flags in (
        (r"-----BEGIN .*?(?:-----END [^-]*-----|\Z)", REDACTED, re.DOTALL),
        (r"\b(\w+://)\S*@", rf"\1{REDACTED}@", 0),
        (r"\b(\w+://[^\s?]+)\?\S+", rf"\1?{REDACTED}", 0),
        (r"\b(Bearer|Basic|Digest)\s+\S+", rf"\1 {REDACTED}", re.IGNORECASE),
        (r"\beyJ[^\s\"']+", REDACTED, 0),
        (r"\b((?:set-)?cookie[\"']?\s*[=:]\s*).*", rf"\1{REDACTED}", re.IGNORECASE),
        (r"\bb(?:'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?)", f"b'{REDACTED}'", 0),  # contents of records
        (
            rf"((?<![\w.-])[\w.-]*?(?:{_SECRET})[\w.-]*[\"']?\s*[=:]\s*)"
            r"(?:\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?|\[[^\]]*\]?|[^\s,;&})\]]+)",
            rf"\1{REDACTED}",
            re.IGNORECASE,
        ),
    )
)
_VALUES_OF_ERRORS: Final = re.compile(r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?")


@attrs.frozen(repr=False)
class Redaction:
    """Replaces secrets in everything that a report has. `_known` are secrets, the longest first."""

    _known: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str], config_file: str | None) -> Redaction:
        """Know the secrets of the variables and of a configuration file. What cannot be read has none."""
        known = {
            word
            for name, text in (*environment.items(), *_config_texts(config_file, environment))
            for word in _secrets(name, text)
            if len(word) >= LEAST_SECRET_CHARS and word.lower() not in _PUBLIC
        }
        return cls(tuple(sorted(known, key=len, reverse=True)))

    def text(self, text: str) -> str:
        """Return a text without secrets, and cut."""
        for secret in self._known:
            text = text.replace(secret, REDACTED)
        if len(text) > MAX_TEXT_CHARS:
            text = f"{text[:MAX_TEXT_CHARS]}... ({len(text)} characters)"
        for pattern, replacement in _LOOKS_SECRET:
            text = pattern.sub(replacement, text)
        return text

    def traceback(self, text: str) -> str:
        """Return a traceback without the values in the messages of errors, which may be contents of records."""
        lines = text.splitlines()
        return "\n".join(
            self.text(line if line.startswith((" ", "Traceback")) else _VALUES_OF_ERRORS.sub(f"'{REDACTED}'", line))
            for line in lines[-MAX_ENTRIES:]
        )

    def clean(self, value: Any, name: str = "") -> Any:
        """Return a value of JSON without secrets, with long texts cut and long lists shortened."""
        if isinstance(value, Mapping):
            items = list(value.items())
            left = {"left_out": len(items) - MAX_ENTRIES} if len(items) > MAX_ENTRIES else {}
            return {self.text(str(key)): self.clean(each, str(key)) for key, each in items[:MAX_ENTRIES]} | left
        if isinstance(value, list | tuple | set | frozenset):
            items = list(value)
            left_out = [f"{len(items) - MAX_ENTRIES} left out"] if len(items) > MAX_ENTRIES else []
            return [self.clean(each, name) for each in items[:MAX_ENTRIES]] + left_out
        if value is None or isinstance(value, bool | int | float):
            return value
        text = str(value)
        return REDACTED if _NAME.search(name) and text.lower() not in _PUBLIC else self.text(text)


def _secrets(name: str, text: str) -> Iterator[str]:
    """The secrets in the value of a variable or a key: the value, or the words of the file that it names."""
    if _SECRET_FILE.search(name) or _NAME.search(name):
        content = _content(text)
        if content is None:
            yield text
            return
        yield from (line.strip() for line in content.splitlines())
        for word in re.split(r"[\s\"',\[\]{}]+", content):
            yield word
            yield word.partition("=")[2]
    elif match := re.match(r"\w+://(\S*)@", text):
        yield match[1].partition(":")[2]


def _content(path: str) -> str | None:
    """The first part of a file; None where no file can be read."""
    try:
        with Path(path).open("rb") as stream:
            return stream.read(MAX_SECRET_FILE_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def _config_texts(config_file: str | None, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The texts of a TOML file by their keys; secrets of links that are in a file or a variable among them."""
    try:
        document = tomllib.loads(_content(config_file or "") or "")
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    values: list[tuple[str, Any]] = [("", document)]
    while values:
        name, value = values.pop()
        if isinstance(value, dict):
            if set(value) == {"variable"}:
                yield "secret", environment.get(str(value["variable"]), "")
            elif set(value) == {"file"}:
                yield "secret_file", str(value["file"])
            else:
                values += value.items()
        elif isinstance(value, list):
            values += ((name, each) for each in value)
        else:
            yield name, str(value)
