"""`triolog edge-demo`: where it runs. `story` is what happens."""

from __future__ import annotations

import gc
import importlib.util
import tempfile
import time
from functools import partial
from pathlib import Path

import click

from ....protocol.extras import how_to_install
from ..flights import find_source, load_flights
from ..showing import EXIT_NOT_INSTALLED, Demo, DemoError, interrupted_by_sigterm, run


@click.command
@click.option("--to", metavar="HOST:PORT", help="Upstream to use instead of the demo's own: a Kafka without TLS and login.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed that selects how much is upstream before everything is killed."
)
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, as JSON.")
@interrupted_by_sigterm()
def command(to: str | None, seed: int, as_json: bool) -> None:
    """Write a week of real flights to a disk of 64 MiB without an uplink, then forward it over a slow uplink and a SIGKILL.

    As root the demo uses a file system of its own. Otherwise log_max_bytes stands for the full disk. Topics at an upstream of
    yours are named edge-demo-<number>.<topic>, and are deleted at the end. With Mosquitto and paho-mqtt, devices also publish
    over MQTT, and `triolog ingest mqtt` stores their messages. Exit code 0 when everything adds up, 1 when it does
    not, 2 when something is not installed, 3 when a process failed.
    """
    if to is not None and not to.rpartition(":")[2].isdecimal():
        raise click.UsageError(f"invalid --to {to}: use HOST:PORT")
    source = find_source()
    if importlib.util.find_spec("confluent_kafka") is None:
        raise DemoError(f"forwarding needs confluent_kafka: {how_to_install('forward')}", EXIT_NOT_INSTALLED)
    from .small_disk import small_disk
    from .story import run_edge_story
    from .week import in_a_week

    begin, demo = time.perf_counter(), Demo(is_quiet=as_json)
    gc.disable()  # what is loaded stays: collections would find nothing and take a third of the time
    try:
        week = in_a_week(load_flights(source), time.time_ns() // 1_000_000)
        gc.freeze()
        gc.enable()
        with tempfile.TemporaryDirectory(prefix="triolog-edge-demo-") as name, small_disk(Path(name)) as disk:
            run(partial(run_edge_story, demo, week, disk, Path(name), to, seed))
    finally:
        gc.enable()
        gc.unfreeze()
    demo.say(f"{time.perf_counter() - begin:.0f} s in all.")
    demo.end(seed=seed)
