"""Parts of tokens, and unsecured ones."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

NOW_S: Final = 1_800_000_000
CLAIMS: Final[dict[str, Any]] = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 600}


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: object) -> str:
    """A part of a token."""
    return base64url(json.dumps(value).encode())


def unsecured(claims: object = CLAIMS, **header: Any) -> str:
    return f"{part({'alg': 'none', **header})}.{part(claims)}."
