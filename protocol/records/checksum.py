"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), by the processor's instruction where it has one.

The native module of the package `crc32c` is loaded alone. Since 2.9 the package reads its own metadata when it is imported: 2.2
MiB and 20 ms in every process. Where it is missing, `pure_checksum` takes its place, and a line of the log says so.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, Final

SLOW: Final = (
    "checksums are computed in Python, about 100 times slower: the package crc32c has no compiled module here. "
    "With a C compiler and Python's headers, run: pip install --force-reinstall --no-binary crc32c crc32c"
)


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    spec = None if package is None else PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    try:
        if spec is None or spec.loader is None:  # another layout: the package knows
            from crc32c import crc32c as whole

            return whole
        native: Any = module_from_spec(spec)
        spec.loader.exec_module(native)
    except ImportError:
        import logging  # 6 modules, which a client needs for nothing else

        from .pure_checksum import crc32c as pure

        logging.getLogger(__name__).warning(SLOW)
        return pure
    return native.crc32c  # type: ignore[no-any-return]


crc32c: Final[Callable[..., int]] = _load()
"""(data, crc=0) -> the unsigned checksum of `data`, continued from `crc` (the checksum of what came before it)."""
