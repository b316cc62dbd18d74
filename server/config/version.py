"""The version of triolog: builds and the native protocol read it here. To read the installed package instead takes 2 MiB."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
VERSION_DATE: Final = "2026-11-29"
"""The day of its release, as in the changelog. No clock that shows an earlier day is right."""
