"""Opens a source by its kind: a directory, or a server's address."""

from __future__ import annotations

import os
from pathlib import Path

from .sources import OpenSource, ReadOptions, Source, address_of


def open_source(source: Source, options: ReadOptions) -> OpenSource:
    """A directory where there is one of that name, else a server. ArrowError for neither."""
    if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
        from .directory import DirectorySource

        return DirectorySource(os.fspath(source), options)
    address = address_of(source)
    from .server import ServerSource

    return ServerSource(address, options)
