"""Put a check before everything that a zipapp does: another Python or another machine gets one line. `make zipapp`.

    python packaging/guarded_zipapp.py SOURCE TARGET PYTHON...

A zipapp has native modules for some Pythons on one kind of machine. Elsewhere it would unpack itself first and then fail on an
import, and a Python older than its own start-up code would show a syntax error. So the check is at the beginning of
`__main__.py`, in words that every Python since 2.7 can read.
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Final

MAIN: Final = "__main__.py"
CHECK: Final = """\
import os, sys
if "%d.%d" % sys.version_info[:2] not in {pythons!r}:
    sys.exit("triolog.pyz runs on Python {listed}, and this is Python %d.%d. Start it with one of those" % sys.version_info[:2])
if not hasattr(os, "uname") or (os.uname()[0], os.uname()[4]) != ({system!r}, {machine!r}):
    sys.exit("triolog.pyz was built for {system} on {machine}. Build it on a machine like this one: make zipapp")
"""


def check(pythons: list[str]) -> str:
    """Return the lines of the check, for the kind of machine that runs this."""
    machine = os.uname()
    listed = f"{', '.join(pythons[:-1])} and {pythons[-1]}" if len(pythons) > 1 else pythons[0]
    return CHECK.format(pythons=tuple(pythons), listed=listed, system=machine.sysname, machine=machine.machine)


def guard(source: Path, target: Path, pythons: list[str]) -> None:
    """Copy a zipapp, with the check at the beginning of what Python runs."""
    with zipfile.ZipFile(source) as found, source.open("rb") as stream, target.open("wb") as made:
        made.write(stream.readline())  # the interpreter
        with zipfile.ZipFile(made, "w") as copy:
            for each in found.infolist():
                content = found.read(each)
                copy.writestr(each, check(pythons).encode() + content if each.filename == MAIN else content)
    shutil.copymode(source, target)


if __name__ == "__main__":
    guard(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
