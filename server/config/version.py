"""Which triolog this is, as the native protocol says it. Asking the installed package instead takes 2 MiB."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
