"""The bill of materials of triolog as CycloneDX 1.6 JSON: what runs with it, with versions and licences. `make sbom`.

    python packaging/sbom.py [--extras NAME,...] FILE

What is listed is what is installed here: triolog's dependencies and theirs, where their markers hold for this Python and this
machine. What an extra asks for, and nothing else does, has the scope `optional` and names its extras; what only builds or tests
is not listed. The same environment gives the same bytes: there is no time and no place in it, and its serial number is made of
its content.
"""

from __future__ import annotations

import argparse
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = "triolog"
SERVER_EXTRAS: Final = ("cli", "metrics", "telemetry", "forward", "mqtt", "oauth", "registry", "regex")
"""Those of a server, its forwarder and its command line."""
EXTRA: Final = "triolog:extra"
"""Property of a component: an extra that asks for it."""
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:triolog:sbom")
LICENCES: Final = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "ISC License (ISCL)": "ISC",
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "http://www.apache.org/licenses/LICENSE-2.0": "Apache-2.0",
}
"""Words of those who have no SPDX expression yet."""
LONGEST_LICENCE: Final = 60
"""Characters; what is longer is a text and not a name."""


class MissingError(Exception):
    """A dependency is not installed here."""


def found(name: str) -> Distribution:
    """Raises MissingError."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise MissingError(f"{name} is not installed here; the bill lists what is: install triolog with the extras") from None


def needs(of: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """(name, extras) of what a distribution asks for on this machine, with these extras of its own."""
    for text in of.requires or ():
        requirement = Requirement(text)
        asked = [{"extra": extra} for extra in ("", *sorted(extras))]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in asked):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def closure(extras: frozenset[str]) -> dict[str, set[str]]:
    """What triolog needs with these extras: by name, what that needs itself. Raises MissingError."""
    graph: dict[str, set[str]] = defaultdict(set)
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(ROOT, extras)]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        found_needs = list(needs(found(name), wanted))
        graph[name] |= {needed for needed, _ in found_needs if needed != name}
        waiting += found_needs
    return graph


def licence(of: Distribution) -> str:
    """An SPDX expression where there is one, else a name. Raises MissingError without either."""
    told = of.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    classified = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or () if line.startswith("License :: ")]
    text = str(told.get("License") or "").strip()
    if text and len(text) <= LONGEST_LICENCE and "\n" not in text:
        return LICENCES.get(text, text)
    if named := [LICENCES.get(each, each) for each in classified if each != "OSI Approved"]:
        return " OR ".join(sorted(named))
    raise MissingError(f"{told['Name']} says no licence")


def component(name: str, kind: ComponentType, asked_by: frozenset[str], *, is_required: bool) -> Component:
    of = found(name)
    url = PackageURL("pypi", None, name, of.version)
    return Component(
        type=kind,
        bom_ref=str(url),
        name=of.metadata["Name"],
        version=of.version,
        description=of.metadata["Summary"],
        licenses=[_licence_of(of)],
        purl=url,
        scope=ComponentScope.REQUIRED if is_required else ComponentScope.OPTIONAL,
        properties=[Property(name=EXTRA, value=extra) for extra in sorted(asked_by)],
    )


def _licence_of(of: Distribution) -> License:
    made: License = LicenseFactory().make_from_string(licence(of))
    return made


def bill(extras: tuple[str, ...]) -> Bom:
    """Raises MissingError."""
    if unknown := sorted(set(extras) - set(found(ROOT).metadata.get_all("Provides-Extra") or ())):
        raise MissingError(f"{ROOT} has no extra {', '.join(unknown)}")
    always = closure(frozenset())
    by_extra: Mapping[str, dict[str, set[str]]] = {extra: closure(frozenset({extra})) for extra in extras}
    graph = closure(frozenset(extras))
    root = component(ROOT, ComponentType.APPLICATION, frozenset(), is_required=True)
    parts = {
        name: component(
            name,
            ComponentType.LIBRARY,
            frozenset() if name in always else frozenset(extra for extra, asked in by_extra.items() if name in asked),
            is_required=name in always,
        )
        for name in sorted(graph)
        if name != ROOT
    }
    content = "\n".join([str(root.purl), *sorted(extras), *(str(part.purl) for part in parts.values())])
    bom = Bom(components=parts.values(), serial_number=uuid.uuid5(NAMESPACE, content))
    bom.metadata.component = root
    bom.metadata.timestamp = None  # type: ignore[assignment] # the schema has it optional
    for name, needed in graph.items():
        of = root if name == ROOT else parts[name]
        bom.register_dependency(of, [parts[each] for each in sorted(needed)])
    return bom


def as_json(bom: Bom) -> str:
    text: str = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    return text + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the bill of materials of triolog.")
    parser.add_argument("--extras", default=",".join(SERVER_EXTRAS), help="of triolog, with commas")
    parser.add_argument("file", type=Path)
    said = parser.parse_args()
    said.file.parent.mkdir(parents=True, exist_ok=True)
    said.file.write_text(as_json(bill(tuple(filter(None, said.extras.split(","))))), encoding="utf-8")


if __name__ == "__main__":
    main()
