"""What is searched for: bytes in keys, values or headers."""

from __future__ import annotations

import re
from typing import Final

import attrs

from ....protocol.limits import MAX_DECOMPRESSED_BYTES
from ....protocol.records.payload import records_data
from ....protocol.types import Record
from ...client.reading import FetchedBatch

PLACES: Final = ("any", "key", "whole-key", "value", "headers")


@attrs.frozen
class Needle:
    """A text, as its bytes in UTF-8, and where it has to be. `ignores_case` is about the letters of ASCII."""

    text: str
    place: str = "any"
    ignores_case: bool = False
    _found: re.Pattern[bytes] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        flags = re.IGNORECASE if self.ignores_case else 0
        object.__setattr__(self, "_found", re.compile(re.escape(self.text.encode(errors="surrogatepass")), flags))

    def may_be_in(self, batch: FetchedBatch) -> bool:
        """Whether it is anywhere in a batch: of most batches no record has to be made to know that it is not."""
        return self._found.search(records_data(batch.data, batch.header, MAX_DECOMPRESSED_BYTES)) is not None

    def is_in(self, record: Record) -> bool:
        found = self._found
        match self.place:
            case "key":
                return record.key is not None and found.search(record.key) is not None
            case "whole-key":
                return record.key is not None and found.fullmatch(record.key) is not None
            case "value":
                return record.value is not None and found.search(record.value) is not None
            case "headers":
                return self._is_in_headers(record)
        return any(each is not None and found.search(each) for each in (record.value, record.key)) or self._is_in_headers(
            record
        )

    def _is_in_headers(self, record: Record) -> bool:
        found = self._found
        return any(found.search(name.encode()) or (value is not None and found.search(value)) for name, value in record.headers)
