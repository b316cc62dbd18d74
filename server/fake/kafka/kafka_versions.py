"""API versions that releases of Apache Kafka advertise: the APIs of each release and their highest versions. For
`emulate="3.4"`.

`CHANGES` begins with Kafka 2.0 and lists the versions that each later release raised or added, in brokers with ZooKeeper where
those had it first. It leaves out APIs that this server does not serve. Source: Kafka's message schemas at its release tags, and
the KIPs that changed them.
"""

from __future__ import annotations

from typing import Final

import attrs

from ....protocol.kafka.apis import APIS, Api

CHANGES: Final = """
2.0 0:6 1:8 2:3 3:6 8:4 9:4 10:2 11:3 12:2 13:2 14:2 15:2 16:2 17:1 18:2 19:3 20:2 21:1 22:1 23:1 24:1 25:1 26:1 27:0 28:1
    29:1 30:1 31:1 32:2 33:1 34:1 35:1 36:0 37:1 42:1
2.1 0:7 1:10 2:4 3:7 8:6 9:5 20:3 23:2 28:2
2.2 2:5 11:4 36:1 43:0
2.3 1:11 3:8 8:7 11:5 12:3 14:3 15:3 23:3 44:0
2.4 0:8 3:9 8:8 9:6 10:3 11:6 12:4 13:4 14:4 15:5 16:3 18:3 19:5 20:4 22:2 42:2 43:2 44:1 45:0 46:0 47:0
2.5 9:7 11:7 14:5 22:3 28:3 29:2 30:2 31:2 36:2 37:2
2.6 16:4 21:2 32:3 35:2 48:0 49:0
2.7 1:12 19:6 20:5 22:4 24:2 25:2 26:2 37:3 50:0 51:0 57:0
2.8 0:9 2:6 3:11 19:7 20:6 23:4 24:3 25:3 26:3 27:1 32:4 33:2 34:2 48:1 49:1 60:0 61:0
3.0 2:7 9:8 10:4 65:0 66:0
3.1 1:13 3:12
3.2 11:9 13:5 35:3
3.3 29:3 30:3 31:3 35:4 55:1 57:1
3.4
3.5 1:15 2:8
3.6 24:4
3.7 0:10 1:16 8:9 9:9 60:1 68:0 71:0 72:0 74:0
3.8 0:11 10:5 16:5 22:5 24:5 25:4 26:4 28:4 66:1 69:0 75:0
3.9 1:17 2:9 10:6 18:4 55:2
4.0 0:12 2:10 3:13 15:6 26:5 28:5 57:2 60:2 68:1 69:1
4.1 0:13 1:18 45:1 66:2 74:1 76:1 77:1 78:1 79:1 90:0 91:0 92:0
4.2 2:11 8:10 9:10 27:2 78:2 79:2 88:0 89:0 90:1
4.3 35:5
4.4 18:5 28:6 42:3 88:1 89:1
"""
"""A release, then key:version of each API that it raised or added."""

RELEASES: Final = {
    release: {int(key): int(version) for key, version in (each.split(":") for each in changes)}
    for release, *changes in map(str.split, CHANGES.replace("\n ", " ").strip().splitlines())
}
"""Release -> API key -> the highest version, for the APIs that the release changed."""


def maxima_of(release: str) -> dict[int, int]:
    """API key -> its highest version in a release. Raises ValueError for an unknown release."""
    if release not in RELEASES:
        raise ValueError(f"unknown Kafka version {release}. Use one of {', '.join(RELEASES)}")
    found: dict[int, int] = {}
    for name, changes in RELEASES.items():
        found |= changes
        if name == release:
            break
    return found


def apis_of(release: str) -> dict[int, Api]:
    """The APIs served both here and by that release, up to the lower of the two highest versions. Raises ValueError for an
    unknown release."""
    maxima = maxima_of(release)
    return {
        key: attrs.evolve(api, highest=min(api.highest, maxima[key]))
        for key, api in APIS.items()
        if key in maxima and maxima[key] >= api.lowest
    }
