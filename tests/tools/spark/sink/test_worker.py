from __future__ import annotations

import gc
import os

import pytest
from triolog.tools.spark.sink.worker import PerProcess, settle


class Thing:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_thing_is_made_once_for_its_key_until_it_is_dropped() -> None:
    kept = PerProcess[str, Thing](2)
    first = kept.get("a", Thing)
    assert kept.get("a", Thing) is first
    assert kept.get("b", Thing) is not first
    kept = PerProcess[str, Thing](2)
    first = kept.get("a", Thing)
    kept.drop("a")
    kept.drop("never there")
    assert first.is_closed
    assert kept.get("a", Thing) is not first


def test_the_oldest_is_closed_when_there_are_too_many() -> None:
    kept = PerProcess[str, Thing](2)
    things = {name: kept.get(name, Thing) for name in "abc"}
    assert [thing.is_closed for thing in things.values()] == [True, False, False]
    kept.close()
    assert all(thing.is_closed for thing in things.values())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # idle threads of other tests
def test_a_forked_process_closes_its_copy_and_makes_its_own() -> None:
    kept = PerProcess[str, Thing](2)
    first = kept.get("a", Thing)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        second = kept.get("a", Thing)
        os.write(write, b"%d%d" % (second is not first, first.is_closed))
        os._exit(0)
    os.close(write)
    answer = os.read(read, 2)
    os.close(read)
    os.waitpid(child, 0)
    assert answer == b"11"
    assert not first.is_closed
    assert kept.get("a", Thing) is first


def test_outside_of_a_task_the_collector_is_left_alone() -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before
