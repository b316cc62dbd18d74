"""The program that `forked_servers` talks to: it has loaded what `triolog serve` loads, and the modules that its arguments
name, and each server is a fork of it.

Messages are JSON over a socket that keeps their bounds: `{"arguments", "cwd", "environment", "output", "open_files"}` starts a
server and is answered with its pid, `{"reap": pid}` waits for one that has ended and is answered with its status as
`subprocess` gives it.
When the other side is gone, so are the servers and this program.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final

MAX_MESSAGE_BYTES: Final = 1 << 20


def preload(more: Sequence[str] = ()) -> None:
    """Import what the command imports before it serves, with all its options but metrics. No thread may run yet: a fork has
    only the one that forks."""
    import triolog.server.app
    import triolog.server.config.broker_settings
    import triolog.server.fake.kafka.kafka_versions
    import triolog.server.fake.kafka.node_listeners
    import triolog.server.fake.serving
    import triolog.server.listeners.http.server
    import triolog.tools.cli.main
    import triolog.tools.cli.serve
    import triolog.tools.cli.terminal.progress  # noqa: F401
    from triolog.server.listeners.kafka.calls import load_calls

    load_calls()
    for module in more:
        importlib.import_module(module)


def answer_requests(requests: socket.socket) -> dict[str, Any] | None:
    """Fork and reap until the other side is gone (None); in a fork, what it has to do."""
    servers: set[int] = set()
    while message := requests.recv(MAX_MESSAGE_BYTES):
        request: dict[str, Any] = json.loads(message)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            servers.discard(request["reap"])
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if not answer:
                return request
            servers.add(answer)
        requests.send(json.dumps(answer).encode())
    for pid in servers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def become_server(request: dict[str, Any]) -> None:
    """`triolog ARGUMENTS` where and with the variables it was asked for; ends the process as the command does."""
    from triolog.tools.cli.main import main

    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    output = os.open(request["output"], os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    if (open_files := request["open_files"]) is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
    sys.argv = ["triolog", *request["arguments"]]
    main(prog_name="triolog")


if __name__ == "__main__":
    preload(sys.argv[2:])
    gc.freeze()  # a fork that looks at all of this has its own copy of it
    with socket.socket(fileno=int(sys.argv[1])) as theirs:
        wanted = answer_requests(theirs)
    if wanted is not None:
        become_server(wanted)
