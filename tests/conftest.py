"""Rules for every test: the examples that hypothesis draws, the tiers, and the check that a test leaves nothing behind."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import pytest
from hypothesis import HealthCheck, register_random, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.support import bytecode, counts, leaks

if TYPE_CHECKING:
    from tests.support.certificates import Certificates
    from tests.support.forked_servers import ServerForker

ROOT: Final = Path(__file__).resolve().parent.parent
LONG_MAX_EXAMPLES: Final = 300
PACKAGES: Final = ("triolog/protocol", "triolog/server", "triolog/tools")
JVM_TESTS: Final = ("tests/tools/spark/jvm/", "tests/kafka/")
"""Folders whose tests share one JVM: Spark's, and that of Apache Kafka's tools."""
MERGE_FOLDERS: Final = ("tests/applications/", "tests/browser/", *JVM_TESTS)
"""Folders of the merge tier: every test there needs a JVM or a browser."""
BEGUN_FIRST: Final = (
    *JVM_TESTS,
    "tests/clients/test_conformance.py",
    "tests/test_container.py",
    "tests/test_tutorials.py",
    "tests/simulation/test_worlds.py",
    "tests/test_packaging.py",
    "tests/server/test_sigkill_under_load.py",
    "tests/test_pages.py",
    "tests/tools/demo/edge/test_accounts.py",
    "tests/tools/spark/test_demo_command.py",
    "tests/server/test_small_device.py",
    "tests/tools/forward/test_sigkill.py",
    "tests/soak/test_histories.py",
    "tests/test_site.py",
    "tests/browser/test_streams.py",
    "tests/server/listeners/test_counts.py",
    "tests/server/logs/test_topic_crashes.py",
    "tests/browser/test_pictures.py",
    "tests/applications/test_streams.py",
    "tests/tools/forward/test_failures.py",
    "tests/server/listeners/kafka/test_cost.py",
    "tests/server/request_fuzz/test_limits.py",
    "tests/browser/test_live.py",
    "tests/browser/test_views.py",
    "tests/server/storage/recovery/test_damage.py",
    "tests/browser/test_records.py",
    "tests/tools/demo/test_command.py",
    "tests/test_readme.py",
    "tests/tools/forward/test_delivery.py",
    "tests/server/listeners/kafka/test_security_clients.py",
    "tests/tools/ingest/test_sigkill.py",
    "tests/tools/ingest/test_file_sigkill.py",
    "tests/server/listeners/kafka/test_many_partitions.py",
    "tests/test_testing_docs.py",
    "tests/server/test_descriptor_limit.py",
    "tests/server/test_memory_limit.py",
    "tests/server/storage/log/test_log_model.py",
    "tests/clients/test_streams_groups.py",
    "tests/server/stages/test_stage_commit_crashes.py",
    "tests/clients/test_franz_go_suite.py",
    "tests/server/request_fuzz/test_whole_requests.py",
    "tests/server/storage/log/test_log_life.py",
    "tests/tools/cli/forward/test_reload.py",
    "tests/tools/cli/forward/test_command.py",
    "tests/tools/pytest_plugin/test_plugin.py",
    "tests/tools/ingest/test_following.py",
    "tests/server/test_disk_full.py",
    "tests/applications/test_connect.py",
    "tests/server/test_first_requests.py",
    "tests/tools/console/test_testing.py",
    "tests/test_suite_rules.py",
    "tests/server/logs/test_undated_records.py",
    "tests/server/storage/recovery/test_space_wait.py",
    "tests/tools/forward/test_beginning.py",
    "tests/server/test_supervised_process.py",
    "tests/server/test_device_faults.py",
    "tests/server/embedded/test_joining_sigkill.py",
)
"""What takes longest although it is few tests, the longest first: at the end one process would be busy with it and the others
with nothing."""


def _register_profile() -> None:
    is_long = counts.is_at_least(counts.LONG)
    settings.register_profile(
        counts.tier(),
        max_examples=counts.counts(LONG_MAX_EXAMPLES),
        deadline=None,  # a deadline measures the machine
        derandomize=not is_long,
        database=DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples") if is_long else None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],  # measures the machine too
    )
    settings.load_profile(counts.tier())


def _register_random() -> None:
    """Let hypothesis seed the pauses before a client's retries. Early: the call looks at every object there is."""
    from triolog.tools.client import backoff  # compiled modules are kept by now

    register_random(backoff._random)


def _take_interrupts() -> None:
    """A suite in a shell's background has SIGINT ignored, and so would the processes have that it starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


gc.disable()  # until `pytest_collection_finish`
bytecode.keep_compiled_modules(ROOT)
_register_profile()
_register_random()
_take_interrupts()


@pytest.hookimpl(tryfirst=True)  # hypothesis reads the option in its own hook
def pytest_configure(config: pytest.Config) -> None:
    if counts.is_at_least(counts.LONG):
        if config.option.hypothesis_seed is None:
            config.option.hypothesis_seed = counts.session_seed()
        if not hasattr(config, "workerinput"):  # xdist's workers report to the controller, which saves the cases
            config.pluginmanager.register(FoundCases(ROOT / "build" / "long"))


def pytest_report_header() -> str:
    draws = "the same on every run"
    if counts.is_at_least(counts.LONG):
        draws = f"drawn from {counts.SEED_VARIABLE}={counts.session_seed()}"
    left_out = "" if counts.is_at_least(counts.MERGE) else f"; left out of the whole suite: {', '.join(MERGE_FOLDERS)}"
    return f"triolog: {counts.tier()} tier, {settings.default.max_examples} examples per property, {draws}{left_out}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without an argument, the commit tier does not import what it would skip: Playwright and the like, in each process."""
    if counts.is_at_least(counts.MERGE) or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return None
    return True if f"{collection_path.relative_to(ROOT)}/".startswith(MERGE_FOLDERS) else None


def pytest_collection(session: pytest.Session) -> None:
    """Before a worker collects the whole suite."""
    worker = getattr(session.config, "workerinput", None)
    if worker is not None and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        number = int(worker["workerid"].removeprefix("gw"))
        bytecode.import_in_turn(ROOT, (*PACKAGES, "tests"), number % worker["workercount"], worker["workercount"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    left_out = [name for name in counts.TIERS if not counts.is_at_least(name)]
    skips = {name: pytest.mark.skip(reason=f"runs with {counts.VARIABLE}={name}") for name in left_out}
    for item in items:
        if counts.MERGE in skips and item.nodeid.startswith(MERGE_FOLDERS):
            item.add_marker(counts.MERGE)
        for name, skip in skips.items():
            if item.get_closest_marker(name):
                item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Thousands of tests and the modules they import stay to the end: the collector need not look at them again and again,
    which took a tenth of the suite. While they come into being nearly nothing of them is garbage: no collector then."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores (`-n auto`): tests wait for clients, devices, JVMs, browsers and what was killed."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """`--dist loadfile`, but that all tests which share a JVM are in one process, and what takes long is begun first.

    No group marks for `--dist loadgroup`: pytest-xdist 3.8 writes them into an attribute that pytest 9.2 does not read.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            shared = [folder for folder in JVM_TESTS if nodeid.startswith(folder)]
            return shared[0] if shared else str(super()._split_scope(nodeid))

        def _assign_work_unit(self, node: object) -> None:
            long = [scope for scope in BEGUN_FIRST if scope in self.workqueue]
            if long:
                self.workqueue.move_to_end(long[0], last=False)
            super()._assign_work_unit(node)

    return Files(config, log)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA with a server and a client."""
    from tests.support.certificates import make_certificates  # cryptography is loaded by those who need it

    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def jvm_options() -> str:
    """Options with which Spark's JVM starts fast."""
    from tests.support import class_archive

    return class_archive.jvm_options()


@pytest.fixture(scope="session")
def server_forker() -> Iterator[ServerForker]:
    """Stands for the command of a `ServerFolder` whose servers need not load everything anew."""
    from tests.support.forked_servers import ServerForker
    from tests.support.server_process import environment

    with ServerForker.running(environment()) as forker:
        yield forker


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No test leaves a descriptor, a thread or a child process. Wider fixtures are set up before this one looks."""
    before = leaks.snapshot()
    yield
    if found := leaks.leaks_since(before):
        pytest.fail("left behind: " + "; ".join(found), pytrace=False)


_FALSIFYING: Final = re.compile(r"(?:Failing test case|Falsifying example): \w+(\(.*?^\))", re.DOTALL | re.MULTILINE)
_MARGIN: Final = re.compile(r"^E       ", re.MULTILINE)
_ERROR: Final = re.compile(r"E  |[\s|]*(?:[\w.]+(?:Error|Exception)\b|File \"|(?:server|protocol|tools|tests)/\S+\.py:\d+)")
_ERROR_LINES: Final = 40
_REPORT_LINES: Final = 60


@attrs.define(eq=False, repr=False)
class FoundCases:
    """A pytest plug-in that owns the files below `folder`/SEED."""

    folder: Path
    _written: list[Path] = attrs.field(init=False, factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            name = re.sub(r"[^\w.-]+", "-", report.nodeid.removeprefix("tests/"))[:150]
            path = self.folder / str(counts.session_seed()) / f"{name}.md"
            if path in self._written:
                return  # what the teardown of a failed test says is mostly that it was left early
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(case_of(report.nodeid, report.longreprtext), encoding="utf-8")
            self._written.append(path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for path in self._written:
            terminalreporter.write_line(f"case saved: {path}")


def case_of(nodeid: str, report: str) -> str:
    """Return the text of one case, in Markdown."""
    environment = f"{counts.VARIABLE}={counts.tier()} {counts.SEED_VARIABLE}={counts.session_seed()}"
    parts = [f"# {nodeid}", f"```\n{environment} make test ARGS='{nodeid}'\n```"]
    if found := _FALSIFYING.search(_MARGIN.sub("", report)):
        parts.append(f"```python\n@example{found[1]}\n```")
    lines = report.splitlines()
    if errors := [line for line in lines[:-_REPORT_LINES] if _ERROR.match(line)]:
        parts.append("```\n" + "\n".join(errors[-_ERROR_LINES:]) + "\n```")
    parts.append("```\n" + "\n".join(lines[-_REPORT_LINES:]) + "\n```")
    return "\n\n".join(parts) + "\n"
