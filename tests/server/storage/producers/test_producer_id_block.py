"""The file that keeps producer ids from being given out twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError
from triolog.server.storage.producers.producer_id_block import (
    PRODUCER_ID_BLOCK_FILE,
    read_producer_id_block,
    write_producer_id_block,
)

FS = OsFileSystem()


def test_a_directory_without_the_file_knows_nothing(tmp_path: Path) -> None:
    assert read_producer_id_block(FS, str(tmp_path)) == 0


@pytest.mark.parametrize("durable", [True, False])
def test_what_was_written_comes_back(tmp_path: Path, durable: bool) -> None:
    write_producer_id_block(FS, str(tmp_path), 2000, durable=durable)
    assert (tmp_path / PRODUCER_ID_BLOCK_FILE).read_bytes() == b"0\n1\n2000\n"
    assert read_producer_id_block(FS, str(tmp_path)) == 2000


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"0\n0\n", b"0\n2\n1\n2\n", b"0\n1\n-5\n", b"1\n1\n5\n", b"0\n1\nx\n", b"\0" * 9]
)
def test_a_file_that_makes_no_sense_is_an_error_and_not_zero(tmp_path: Path, data: bytes) -> None:
    (tmp_path / PRODUCER_ID_BLOCK_FILE).write_bytes(data)
    with pytest.raises(CheckpointError, match=PRODUCER_ID_BLOCK_FILE):
        read_producer_id_block(FS, str(tmp_path))
