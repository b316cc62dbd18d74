"""The version of triolog: builds and the native protocol read it here. To read the installed package instead takes 2 MiB."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
