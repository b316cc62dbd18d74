"""The assignor `sticky`: every task once, copies in other processes, evenly, and with whom they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from triolog.server.groups.streams.assignor import AssignedMember, SubtopologyTasks, assign_sticky
from triolog.server.groups.streams.values import TaskId, Tasks

PARTS = st.dictionaries(st.sampled_from("0123"), st.builds(SubtopologyTasks, st.integers(1, 6), st.booleans()), min_size=1)
PROCESSES = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("pqr"), min_size=1)


def assign(
    processes: Mapping[str, str],
    parts: Mapping[str, SubtopologyTasks],
    replicas: int = 0,
    before: Mapping[str, Tasks] | None = None,
) -> dict[str, Tasks]:
    members = {name: AssignedMember(process, (before or {}).get(name, Tasks())) for name, process in processes.items()}
    return assign_sticky(members, parts, replicas)


def every_task(parts: Mapping[str, SubtopologyTasks], *, with_state: bool = False) -> list[TaskId]:
    wanted = [(name, part) for name, part in parts.items() if part.is_stateful or not with_state]
    return [TaskId(name, number) for name, part in wanted for number in range(part.task_count)]


@given(PROCESSES, PARTS, st.integers(0, 3), PROCESSES)
def test_tasks_are_run_once_and_copied_elsewhere(
    processes: dict[str, str], parts: dict[str, SubtopologyTasks], replicas: int, earlier: dict[str, str]
) -> None:
    before = assign(earlier, parts, replicas)
    targets = assign(processes, parts, replicas, before)
    assert targets.keys() == processes.keys()
    assert sorted(task for each in targets.values() for task in each.active) == sorted(every_task(parts))
    held = Counter((processes[name], task) for name, each in targets.items() for task in (*each.active, *each.standby))
    assert set(held.values()) == {1}, "a process has a task twice"
    copies = min(replicas, len(set(processes.values())) - 1)
    standby = Counter(task for each in targets.values() for task in each.standby)
    assert standby == Counter({task: copies for task in every_task(parts, with_state=True) if copies})
    assert not any(each.warmup for each in targets.values())


@given(PROCESSES, PARTS, st.integers(0, 2))
def test_an_assignment_stays(processes: dict[str, str], parts: dict[str, SubtopologyTasks], replicas: int) -> None:
    before = assign(processes, parts, replicas)
    again = assign(processes, parts, replicas, before)
    assert {name: each.active for name, each in again.items()} == {name: each.active for name, each in before.items()}


@given(st.integers(1, 8), PARTS)
def test_members_of_like_processes_have_about_equally_many(count: int, parts: dict[str, SubtopologyTasks]) -> None:
    targets = assign({f"m{number}": f"p{number}" for number in range(count)}, parts)
    sizes = [len(each.active) for each in targets.values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(2, 8), PARTS)
def test_what_the_others_have_stays_when_a_member_leaves(count: int, parts: dict[str, SubtopologyTasks]) -> None:
    processes = {f"m{number}": f"p{number}" for number in range(count)}
    before = assign(processes, parts)
    left = {name: process for name, process in processes.items() if name != "m0"}
    after = assign(left, parts, 0, before)
    assert all(before[name].active <= after[name].active for name in left)


def test_a_copy_takes_over_when_its_owner_is_gone() -> None:
    parts = {"0": SubtopologyTasks(6, is_stateful=True)}
    before = assign({"a": "p", "b": "q", "c": "r"}, parts, 1)
    after = assign({"b": "q", "c": "r"}, parts, 1, before)
    moved = before["a"].active
    taken = {name: after[name].active & moved for name in "bc"}
    kept = {name: taken[name] & before[name].standby for name in "bc"}
    assert taken["b"] | taken["c"] == moved
    assert kept["b"] or kept["c"], "nobody who had a copy runs the task"
