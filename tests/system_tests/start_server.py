"""A broker of the system tests: reads Kafka's properties, and is `triolog serve`. A controller only says that it has started:
triolog needs no quorum.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

from triolog.server.config.broker_config import BROKER_KEYS
from triolog.tools.cli.main import main

STARTED: Final = "Kafka Server started"
FIXED: Final = frozenset({"data_dirs", "node_id", "kafka", "kafka_advertised", "sasl_enabled_mechanisms"})
READY_FILE: Final = Path("/mnt/kafka/ready.json")


def read_properties(path: str) -> dict[str, str]:
    lines = (line.partition("=") for line in Path(path).read_text(encoding="utf-8").splitlines())
    return {key.strip(): value.strip() for key, found, value in lines if found and not key.startswith("#")}


def arguments_of(properties: dict[str, str]) -> list[str]:
    """The command line of `triolog serve`, with a file of those keys that both servers have."""
    listeners = dict(each.split("://") for each in properties["advertised.listeners"].split(","))
    address = listeners.get("PLAINTEXT")
    if address is None:
        raise SystemExit(f"no adapter for the listeners {', '.join(listeners)}: it has PLAINTEXT only")
    named = {key.broker_name: key for key in BROKER_KEYS.values() if key.broker_name}
    keys = {"lenient": "true", "insecure": "true", "kafka": f'"{address}"'}
    for name, value in properties.items():
        key = named.get(name)
        if key is None or key.name in FIXED or name.startswith(("listener", "ssl.", "sasl.", "advertised")):
            continue
        with contextlib.suppress(ValueError):
            key.read(value)
            keys[key.name] = f'"{value}"'
    file = Path("/mnt/kafka/triolog.toml")
    file.write_text("".join(f"{name} = {value}\n" for name, value in keys.items()), encoding="utf-8")
    data = properties.get("log.dirs", "/mnt/kafka/kafka-data-logs-1").split(",")[0]
    return ["serve", "--config", str(file), "--data-dir", data, "--native", "127.0.0.1:0", "--ready-file", str(READY_FILE)]


def announce(*, is_ready: bool = False) -> None:
    while not is_ready and not READY_FILE.exists():
        time.sleep(0.05)
    sys.stdout.write(f"{STARTED}\n")
    sys.stdout.flush()


def run(path: str) -> None:
    properties = read_properties(path)
    if "broker" not in properties.get("process.roles", "broker"):
        announce(is_ready=True)
        signal.sigwait({signal.SIGTERM})
        return
    READY_FILE.unlink(missing_ok=True)
    threading.Thread(target=announce, daemon=True).start()
    main(arguments_of(properties))


if __name__ == "__main__":
    run(sys.argv[1])
