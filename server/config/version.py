"""The version of triolog, as the native protocol reports it. Reading it from the installed package instead takes 2 MiB."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
