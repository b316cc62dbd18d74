"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), by the processor's instruction where it has one.

The native module of the package `crc32c` is loaded alone. Since 2.9 the package reads its own metadata when it is imported: 2.2
MiB and 20 ms in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, Final

from ..errors import PackageMissingError


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    spec = None if package is None else PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:  # another layout: the package knows
        try:
            from crc32c import crc32c as whole
        except ImportError:
            raise PackageMissingError("crc32c") from None
        return whole
    native: Any = module_from_spec(spec)
    spec.loader.exec_module(native)
    return native.crc32c  # type: ignore[no-any-return]


crc32c: Final[Callable[..., int]] = _load()
"""(data, crc=0) -> the unsigned checksum of `data`, continued from `crc` (the checksum of what came before it)."""
