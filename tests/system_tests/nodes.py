"""Nodes of ducktape that are namespaces on this machine: each has its own processes and its own /mnt, and no node has an sshd.

ducktape calls `ssh_client` and `sftp_client` of paramiko. `Client` and `Files` have the methods of these that it uses.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import IO, Any, Final

from ducktape.cluster.cluster_node import ClusterNode
from ducktape.cluster.linux_remoteaccount import LinuxRemoteAccount
from ducktape.cluster.localhost import LocalhostCluster
from ducktape.cluster.node_container import NodeContainer
from ducktape.cluster.remoteaccount import RemoteAccountSSHConfig

NODES: Final = 12
READ_BYTES: Final = 64 * 1024


def name_of(number: int) -> str:
    return f"worker{number}"


def address_of(number: int) -> str:
    return f"127.0.1.{number + 1}"


class LocalCluster(LocalhostCluster):
    """A cluster of `NODES` namespaces."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(num_nodes=0)
        self._available_nodes = NodeContainer()
        for number in range(NODES):
            self._available_nodes.add_node(ClusterNode(LocalAccount(number)))


class LocalAccount(LinuxRemoteAccount):
    """A node. A process that sleeps keeps its namespaces."""

    def __init__(self, number: int) -> None:
        super().__init__(RemoteAccountSSHConfig(name_of(number), hostname=name_of(number)))
        self.externally_routable_ip = address_of(number)
        # jps finds processes of Java by their files in /tmp/hsperfdata_*, which nodes must not share: their pids are equal.
        performance = "mkdir -p /tmp/hsperfdata_root && mount -t tmpfs -o mode=755 tmpfs /tmp/hsperfdata_root"
        keep = f"mount -t tmpfs tmpfs /mnt && {performance} && echo ready && exec sleep infinity"
        command = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child", "bash", "-c", keep]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text()
        self._pid = int(children.split()[0])

    @property
    def ssh_client(self) -> Client:
        return Client(self._pid)

    @property
    def sftp_client(self) -> Files:
        return Files(self._pid)

    def close(self) -> None:
        """Nothing is open between two calls."""


class Client:
    """Runs commands on a node, as paramiko's `SSHClient`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def get_transport(self) -> Client:
        return self

    def open_session(self, timeout: float | None = None) -> Channel:
        return Channel(self._pid)

    def exec_command(self, command: str) -> tuple[Output, Output, Output]:
        channel = Channel(self._pid)
        channel.exec_command(command)
        return channel.makefile("wb"), channel.makefile("r"), channel.makefile_stderr("r")


class Channel:
    """A command, as paramiko's `Channel`. It starts with its first stream, when all settings are known."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._timeout: float | None = None
        self._combines = False
        self._command = ""
        self._process: subprocess.Popen[bytes] | None = None

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def gettimeout(self) -> float | None:
        return self._timeout

    def exec_command(self, command: str) -> None:
        self._command = command

    def set_combine_stderr(self, combines: bool) -> None:
        self._combines = combines

    def recv_exit_status(self) -> int:
        return self._started().wait()

    def makefile(self, mode: str, buffer: int = -1) -> Output:
        process = self._started()
        return Output(self, process.stdin if "w" in mode else process.stdout)

    def makefile_stderr(self, mode: str, buffer: int = -1) -> Output:
        return Output(self, self._started().stderr)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            errors = subprocess.STDOUT if self._combines else subprocess.PIPE
            command = ["nsenter", "-t", str(self._pid), "-p", "-m", "bash", "-c", self._command]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd="/", start_new_session=True
            )
        return self._process


class Output:
    """A stream of a command, as paramiko's `ChannelFile`: `read` returns bytes, `readline` text."""

    def __init__(self, channel: Channel, stream: IO[bytes] | None) -> None:
        self.channel = channel
        self._stream = stream
        self._data = b""

    def read(self) -> bytes:
        if self._stream is None:
            return b""
        while piece := self._piece():
            self._data += piece
        data, self._data = self._data, b""
        return data

    def readline(self) -> str:
        while b"\n" not in self._data and (piece := self._piece()):
            self._data += piece
        line, found, self._data = self._data.partition(b"\n")
        return (line + found).decode("utf-8", "replace")

    def __iter__(self) -> Any:
        return iter(self.readline, "")

    def write(self, data: bytes | str) -> None:
        assert self._stream is not None
        self._stream.write(data.encode() if isinstance(data, str) else data)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _piece(self) -> bytes:
        if self._stream is None or self._stream.closed:
            return b""
        timeout = self.channel.gettimeout()
        if timeout is not None and not select.select([self._stream], [], [], timeout)[0]:
            raise TimeoutError
        return os.read(self._stream.fileno(), READ_BYTES)


class Files:
    """Files of a node, as paramiko's `SFTPClient`, through /proc."""

    def __init__(self, pid: int) -> None:
        self._root = f"/proc/{pid}/root"

    def get(self, source: str, target: str) -> None:
        shutil.copyfile(self._root + source, target)

    def put(self, source: str, target: str) -> None:
        shutil.copyfile(source, self._root + target)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(self._root + path)

    def stat(self, path: str) -> os.stat_result:
        return os.stat(self._root + path)

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(self._root + path)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        os.mkdir(self._root + path, mode)

    def open(self, path: str, mode: str = "r") -> Any:
        return open(self._root + path, mode)

    def close(self) -> None:
        """Nothing is open between two calls."""
