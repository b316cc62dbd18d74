"""Add the project's home to a release: URLs in pyproject.toml, and full links in the README for a package index.

    python packaging/name_home.py https://HOST/OWNER/NAME TAG

The tree does not name its home, because a fork has another one. The workflow that publishes knows it, and runs this before it
builds.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
RELATIVE: Final = re.compile(r"\]\((?![a-z]+:|#)([^)]+)\)")
PICTURES: Final = (".webp", ".svg", ".png")


def urls(home: str, tag: str) -> str:
    """Return the table of pyproject.toml."""
    pages = {
        "Homepage": home,
        "Documentation": f"{home}/blob/{tag}/docs/index.md",
        "Changelog": f"{home}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }
    return "\n[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in pages.items())


def with_full_links(readme: str, home: str, tag: str) -> str:
    """Return the README with the address of this tag before each path."""

    def full(found: re.Match[str]) -> str:
        kind = "raw" if found[1].endswith(PICTURES) else "blob"
        return f"]({home}/{kind}/{tag}/{found[1]})"

    return RELATIVE.sub(full, readme)


def name_home(folder: Path, home: str, tag: str) -> None:
    """Change both files in a folder."""
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as stream:
        stream.write(urls(home, tag))
    readme = folder / "README.md"
    readme.write_text(with_full_links(readme.read_text(encoding="utf-8"), home, tag), encoding="utf-8")


if __name__ == "__main__":
    name_home(ROOT, sys.argv[1], sys.argv[2])
