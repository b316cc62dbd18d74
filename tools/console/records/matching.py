"""What is searched for: bytes in keys, values or headers."""

from __future__ import annotations

from typing import Final

import attrs

from ....protocol.limits import MAX_DECOMPRESSED_BYTES
from ....protocol.records.unpacking import records_data
from ....protocol.types import Record
from ...client.reading import FetchedBatch

PLACES: Final = ("any", "key", "whole-key", "value", "headers")


@attrs.frozen
class Needle:
    """A text, as its bytes in UTF-8, and where it has to be. `ignores_case` is about the letters of ASCII."""

    text: str
    place: str = "any"
    ignores_case: bool = False
    _wanted: bytes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_wanted", self._folded(self.text.encode(errors="surrogatepass")))

    def may_be_in(self, batch: FetchedBatch) -> bool:
        """Whether it is anywhere in a batch: of most batches no record has to be made to know that it is not."""
        return self._wanted in self._folded(records_data(batch.data, batch.header, MAX_DECOMPRESSED_BYTES))

    def is_in(self, record: Record) -> bool:
        match self.place:
            case "key":
                return self._holds(record.key)
            case "whole-key":
                return record.key is not None and self._folded(record.key) == self._wanted
            case "value":
                return self._holds(record.value)
            case "headers":
                return self._is_in_headers(record)
        return self._holds(record.value) or self._holds(record.key) or self._is_in_headers(record)

    def _is_in_headers(self, record: Record) -> bool:
        return any(self._holds(name.encode()) or self._holds(value) for name, value in record.headers)

    def _holds(self, data: bytes | None) -> bool:
        return data is not None and self._wanted in self._folded(data)

    def _folded(self, data: bytes) -> bytes:
        return data.lower() if self.ignores_case else data
