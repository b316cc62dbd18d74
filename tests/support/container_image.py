"""The image of packaging/container, built and run here: a base of packages, buildah, podman. Nothing is left behind.

It needs root, buildah, podman and a network. Storage is in memory where there is enough.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "packaging" / "container"
PROGRAMS: Final = ("apt-get", "buildah", "chroot", "dpkg-deb", "podman", "tar")
INCLUDED: Final = ("base-files", "base-passwd", "coreutils", "dash", "libc-bin", "passwd", "python3-minimal", "python3-venv")
NOT_IMPORTED: Final = "/(distutils|ensurepip|lib2to3|pydoc_data|turtledemo|unittest|wsgiref|xmlrpc)/"
BASE: Final = "localhost/triolog-test-base"
IMAGE: Final = "localhost/triolog-test"
CERTIFICATES: Final = Path("/etc/ssl/certs")
PIP_SETTINGS: Final = Path("/etc/pip.conf")
IN_MEMORY: Final = Path("/dev/shm")
NEEDED_BYTES: Final = 3 * 2**30
DEADLINE_S: Final = 60.0
BUILD_DEADLINE_S: Final = 600.0
POLL_S: Final = 0.05


def missing() -> str | None:
    """Return why no image can be built here; None if it can."""
    if absent := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"{', '.join(absent)} is not installed here"
    return None if os.geteuid() == 0 else "only root can build and run the image over a base of packages"


def _run(*command: str, timeout_s: float = DEADLINE_S, variables: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout_s, env={**os.environ, **(variables or {})}
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


LIMITS: Final = ("--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096")
"""podman's defaults are more than root may set on a confined machine."""


@attrs.frozen
class Containers:
    """The storage of one test session, with the image in it."""

    storage: Path

    @property
    def options(self) -> tuple[str, ...]:
        return ("--root", str(self.storage / "root"), "--runroot", str(self.storage / "run"))

    def podman(self, *arguments: str) -> str:
        return _run("podman", *self.options, *arguments)

    def create(self, *options: str, command: tuple[str, ...] = ()) -> str:
        return self.podman("create", *LIMITS, *options, IMAGE, *command)

    def run(self, *options: str, command: tuple[str, ...] = ()) -> str:
        return self.podman("run", "--rm", *LIMITS, *options, IMAGE, *command)

    def published(self, container: str, port: int) -> str:
        """Return HOST:PORT at which this machine reaches a port of a container."""
        return self.podman("port", container, str(port)).splitlines()[0]

    def wait_healthy(self, container: str) -> None:
        """Wait until the health check of the image succeeds."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.podman("healthcheck", "run", container)
                return
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)

    @contextmanager
    def docker_socket(self) -> Iterator[str]:
        """Yield the address of podman's socket for Docker's clients."""
        socket = self.storage / "docker.sock"
        command = ["podman", *self.options, "system", "service", "--time", "0", f"unix://{socket}"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as service:
            try:
                deadline = time.monotonic() + DEADLINE_S
                while not socket.exists():
                    assert service.poll() is None, "podman system service ended"
                    assert time.monotonic() < deadline, f"there is no {socket}"
                    time.sleep(POLL_S)
                yield f"unix://{socket}"
            finally:
                service.terminate()


def _base(storage: Path) -> None:
    """Import packages from the mirror that apt uses. They are unpacked, and their scripts, which take 30 s, do not run."""
    packages, tree = storage / "packages", storage / "base"
    (packages / "partial").mkdir(parents=True)
    installed = storage / "installed"
    installed.touch()
    options = {"Dir::State::status": installed, "Dir::Cache::archives": packages, "APT::Install-Recommends": "false"}
    named = [f"--option={name}={value}" for name, value in {**options, "Debug::NoLocking": "true"}.items()]
    _run("apt-get", *named, "--download-only", "--quiet", "--yes", "install", *INCLUDED, timeout_s=BUILD_DEADLINE_S)
    for package in sorted(packages.glob("*.deb")):
        _run("dpkg-deb", "--extract", str(package), str(tree))
    shutil.rmtree(packages)
    for name in ("passwd", "group"):
        shutil.copy(tree / "usr/share/base-passwd" / f"{name}.master", tree / "etc" / name)
    # No user of the image may write bytecode. Each start would compile the modules again.
    compiling = f"python3 -m compileall -q -x '{NOT_IMPORTED}' /usr/lib/python3.*/"
    _run("chroot", str(tree), "sh", "-c", compiling, timeout_s=BUILD_DEADLINE_S)
    archive = storage / "base.tar"
    _run("tar", "-C", str(tree), "-cf", str(archive), ".", timeout_s=BUILD_DEADLINE_S)
    shutil.rmtree(tree)
    _run("podman", *Containers(storage).options, "import", "--quiet", str(archive), BASE, timeout_s=BUILD_DEADLINE_S)
    archive.unlink()


def _image(storage: Path) -> None:
    """pip gets the certificates and settings of this machine: it may reach the index only through a proxy."""
    shared = [path for path in (CERTIFICATES, PIP_SETTINGS) if path.exists()]
    volumes = [f"--volume={path}:{path}:ro" for path in shared]
    build = ("build", "--isolation=chroot", "--format=docker", "--quiet", f"--build-arg=BASE={BASE}", *volumes)
    file = ("--file", str(FOLDER / "Dockerfile"), "--tag", IMAGE, str(ROOT))
    _run("buildah", *Containers(storage).options, *build, *file, timeout_s=BUILD_DEADLINE_S)


@contextmanager
def containers(folder: Path) -> Iterator[Containers]:
    """Build the image, and remove everything at the end of the block. `folder` is used where memory has no space."""
    in_memory = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > NEEDED_BYTES
    storage = Path(tempfile.mkdtemp(prefix="triolog-image-", dir=IN_MEMORY if in_memory else folder))
    there = Containers(storage)
    try:
        _base(storage)
        _image(storage)
        yield there
    finally:
        there.podman("rm", "--all", "--force", "--volumes", "--time", "0")
        there.podman("rmi", "--all", "--force")
        shutil.rmtree(storage)
