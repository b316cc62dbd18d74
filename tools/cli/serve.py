"""`triolog serve`: read the configuration, run the server, say where it listens. Loads neither rich nor a client."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import importlib.util
import linecache
import logging
import os
import resource
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ...protocol.extras import how_to_install
from .terminal.grammar import complete_address, option
from .terminal.remote import DEFAULT_SERVER

if TYPE_CHECKING:
    from ...server.config.broker_config import BrokerConfig
    from ...server.listeners.opening import Addresses
    from ...server.service.service import Change
    from ..console.process.supervisor import ConsoleChild
    from ..forward.settings.process_settings import LinkKind
    from ..mirror.settings import MirrorSettings

LOGGER: Final = logging.getLogger(__name__)

EXIT_CANNOT_SERVE: Final = 3
FORWARD: Final = "forward"
INGEST: Final = "ingest"
MIRROR: Final = "mirror"
STDOUT: Final = "-"
DEFAULT_DATA_DIR: Final = "triolog-data"
DEFAULT_KAFKA: Final = "127.0.0.1:9092"
USUAL: Final = gc.get_threshold()
OPEN_MAX: Final = 10_240
"""Files that macOS accepts as a soft limit where the hard one is unlimited (setrlimit(2), its OPEN_MAX)."""
ATTRS_METHODS: Final = "<attrs generated methods "
"""Beginning of the names under which attrs keeps them."""
WHILE_LOADING: Final = (10_000, *USUAL[1:])
"""What is loaded stays, but for a class behind each attrs class: 5 MiB, which the collector finds seldom enough."""
WHILE_STARTING: Final = (100_000, *USUAL[1:])
"""Logs that are opened stay, a hundred objects each, and the collector would look at all of them whenever they are a quarter
more: a fifth of a start with 5,000. It still comes by where a long start leaves garbage."""


def _address(default: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Complete an address by a default."""
    return lambda ctx, param, value: None if value is None else complete_address(value, default)


class CannotServeError(click.ClickException):
    """The directories or the address cannot be used, or the device failed."""

    exit_code = EXIT_CANNOT_SERVE


@click.command
@option(
    *("-d", "--data-dir", "data_dirs"),
    also=("--dir",),
    multiple=True,
    type=click.Path(file_okay=False),
    help=f"Log directory (repeatable).  [default: {DEFAULT_DATA_DIR}]",
)
@click.option(
    "--native",
    metavar="[HOST:]PORT",
    callback=_address(DEFAULT_SERVER),
    help=f"Listen for triolog's own commands and clients.  [default: {DEFAULT_SERVER}; port 0: any]",
)
@option(
    "--kafka",
    also=("--bootstrap-server",),
    metavar="[HOST:]PORT",
    callback=_address(DEFAULT_KAFKA),
    help=f"Listen for Kafka clients.  [default without --data-dir: {DEFAULT_KAFKA}]",
)
@click.option("--metrics", metavar="[HOST:]PORT", callback=_address("127.0.0.1:"), help="Serve /metrics, /livez and /readyz.")
@click.option(
    "--schema-registry",
    metavar="[HOST:]PORT",
    callback=_address("127.0.0.1:"),
    help="Serve a schema registry with Confluent's REST API.",
)
@click.option("--console", metavar="[HOST:]PORT", callback=_address("127.0.0.1:"), help="Serve the console for browsers.")
@click.option("--console-allow-changes", is_flag=True, help="Let users of the console change things.")
@click.option("--control", metavar="HOST:PORT", help="Tests only: serve HTTP calls that control the broker.")
@click.option(
    "--control-token-file", type=click.Path(exists=True, dir_okay=False), help="Tests only: file with a token for --control."
)
@click.option("--insecure", is_flag=True, help="Accept clients without a login on other addresses than loopback.")
@click.option("--faults", "rules", type=click.Path(exists=True, dir_okay=False), help="Tests only: YAML file with fault rules.")
@click.option("--nodes", type=click.IntRange(1, 100), default=1, help="Tests only: Kafka listeners that look like a cluster.")
@click.option("--emulate", metavar="VERSION", help="Tests only: behave like this version of Kafka, such as 3.4.")
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write the real addresses to this file (-: standard output) once the server accepts connections.",
)
@click.option("--durability", metavar="MODE", help="Default durability of topics: fsync (the default), group:<ms> or os.")
@click.option("--topic-config", type=click.Path(exists=True, dir_okay=False), help="TOML file for adopted topics.")
@click.option(
    "-c", "--config", "config_file", type=click.Path(exists=True, dir_okay=False), help="TOML file with the server's keys."
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Lowest level of log lines.  [default: info]"
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    data_dirs: tuple[str, ...],
    native: str | None,
    kafka: str | None,
    metrics: str | None,
    schema_registry: str | None,
    console: str | None,
    console_allow_changes: bool,
    control: str | None,
    control_token_file: str | None,
    insecure: bool,
    rules: str | None,
    nodes: int,
    emulate: str | None,
    ready_file: str | None,
    durability: str | None,
    topic_config: str | None,
    config_file: str | None,
    log_level: str | None,
    log_format: str,
) -> None:
    """Run a server until SIGTERM or SIGINT; on SIGHUP it reads its settings again.

    Without arguments it serves ./triolog-data on loopback, to triolog's clients on port 9095 and to Kafka clients on 9092. Keys
    come from --config (TOML), then TRIOLOG_* variables, then options; later ones win. Exit code 0 after a clean shutdown, 2 for
    a wrong configuration, 3 when a directory or an address cannot be used.
    """
    with seldom_collecting(WHILE_LOADING):
        import trio

        from ...protocol.errors import RequestError, TriologError
        from ...server.app import serve
        from ...server.config.broker_config import DEFAULT_NATIVE, BrokerConfig
        from ...server.config.broker_settings import (
            HTTP,
            KAFKA,
            METRICS,
            NATIVE,
            REGISTRY,
            check_exposure,
            read_settings,
            read_topic_configs,
        )
        from ...server.service.log_lines import configure_logging
        from ...server.service.service import Service
        from ...server.system.allocator import use_one_arena
        from ...server.system.open_files import check_open_files
        from ...server.system.supervisor import Supervisor
        from .terminal.progress import StartBar

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until somebody listens
    log_lines = configure_logging(log_level or "info", as_json=log_format == "json")
    arguments: dict[str, Any] = {
        "data_dirs": data_dirs or None,
        "native": native,
        "kafka": kafka,
        "metrics": metrics,
        "schema_registry": schema_registry,
        "durability": durability,
        "log_level": log_level,
        "insecure": insecure or None,
    }
    _raise_descriptor_limit()
    try:
        settings = read_settings(config_file, os.environ, arguments)
        is_first = "data_dirs" not in settings
        if is_first:
            if config_file is not None:
                raise click.UsageError(f"{config_file} names no data_dirs. Add them, or give --data-dir DIR")
            arguments |= {"data_dirs": (DEFAULT_DATA_DIR,), "kafka": str(settings.get("kafka", DEFAULT_KAFKA))}
            settings = read_settings(config_file, os.environ, arguments)
        adopted = {} if topic_config is None else read_topic_configs(topic_config)
        config = BrokerConfig(**settings, adopted_topics=adopted)
        check_open_files(config.max_connections)
        others = {METRICS: config.metrics, REGISTRY: config.schema_registry, HTTP: config.http}
        check_exposure(config, {NATIVE: config.native or DEFAULT_NATIVE, KAFKA: config.kafka, **others})
    except RequestError as exc:
        raise click.UsageError(exc.message) from exc
    log_lines.set(config)
    if config.metrics is not None:
        _check_metrics_extra()
    if config.schema_registry is not None:
        _check_registry_extra()
    if config.kafka is not None:
        with seldom_collecting(WHILE_LOADING):
            from ...server.listeners.kafka.calls import load_calls

            load_calls()
    kinds = _kinds_of_links(config_file)
    mirrors = _mirrors(config_file)
    state_dir = str(_forward_state_dir(config_file)) if config_file is not None and FORWARD in kinds else None
    shown = (
        None
        if console is None
        else _console(console, config, state_dir, control_token_file, allow_changes=console_allow_changes)
    )
    use_one_arena()
    _forget_generated_source()
    gc.freeze()
    if "max_connections" not in settings:
        _say_when_connections_are_few(config.max_connections)
    if ready_file is not None and ready_file != STDOUT:
        _remove_old(ready_file)
    if control is not None or rules is not None or nodes > 1 or emulate is not None:
        if kinds or mirrors:
            raise click.UsageError(f"{config_file} has links, but a server for tests starts none")
        _serve_for_tests(config, control, control_token_file, rules, nodes, emulate, ready_file, shown)
        return

    def read_again() -> BrokerConfig:
        return BrokerConfig(**{"data_dirs": (), **read_settings(config_file, os.environ, arguments)}, adopted_topics=adopted)

    faulthandler.enable()  # a watchdog that nobody feeds ends us with SIGABRT: the log has where every thread was
    service = Service(Supervisor.taken_from(os.environ), log_lines, read_again)
    if config_file is not None:
        service.parts.append(partial(_links_part, config_file, {*kinds, *([MIRROR] if mirrors else [])}))
        if mirrors:
            from ..mirror.beside import mirror_beside

            mirror_beside(config_file, mirrors, service)
    bar = StartBar() if log_format == "text" and sys.stderr.isatty() else None
    try:
        with bar or contextlib.nullcontext(), seldom_collecting():
            started = partial(_started, ready_file, is_first=is_first)
            run: Callable[..., Awaitable[None]] = serve
            for kind in kinds.values():
                from ..forward.process.supervisor import serve_beside

                assert config_file is not None, "links come from a file"
                run = partial(serve_beside, kind, config_file, run)

            async def serving(started: Callable[[Addresses], None]) -> None:
                await run(config, started, bar, service)

            if shown is None:
                trio.run(serving, started)
            else:
                trio.run(shown.beside, serving, started)
    except* (OSError, TriologError) as group:
        raise _cannot_serve(group) from group


def _serve_for_tests(
    config: BrokerConfig,
    control: str | None,
    token_file: str | None,
    rules: str | None,
    nodes: int,
    emulate: str | None,
    ready_file: str | None,
    shown: ConsoleChild | None,
) -> None:
    """A server that can be told to do wrong, and to die and come back; it moves by a clock of its own."""
    import trio

    from ...protocol.errors import TriologError
    from ...server.config.broker_config import DEFAULT_NATIVE, Address
    from ...server.config.broker_settings import is_loopback
    from ...server.fake.clock import MovedClock
    from ...server.fake.faults.rules import RuleError
    from ...server.fake.kafka.kafka_versions import maxima_of
    from ...server.fake.serving import check_rules, serve_for_tests
    from ...server.listeners.http.access import read_token
    from ...server.listeners.opening import Addresses

    try:
        address = None if control is None else Address.parse(control)
        token = None if token_file is None else read_token(token_file)
        if address is not None and token is None and not is_loopback(address.host):
            raise click.UsageError(
                f"--control {address}: other machines can reach it. Require a token with --control-token-file"
            )
        if rules is not None:
            check_rules(rules)
        if emulate is not None:
            maxima_of(emulate)
    except (RuleError, ValueError, TriologError) as exc:
        raise click.UsageError(str(exc)) from exc
    clock = MovedClock()
    wanted = Addresses(config.native or DEFAULT_NATIVE, config.kafka, http=config.http)

    started = partial(_started, ready_file)
    try:
        with seldom_collecting():

            async def serving(started: Callable[[Addresses], None]) -> None:
                await serve_for_tests(config, wanted, address, rules, clock, started, nodes, emulate, token)

            if shown is None:
                trio.run(serving, started, clock=clock)
            else:
                trio.run(shown.beside, serving, started, clock=clock)
    except* (OSError, TriologError) as group:
        raise _cannot_serve(group) from group


def _forward_state_dir(config_file: str) -> Path:
    """Return the state directory through which the links of a file can be reached."""
    from ..forward.process.supervisor import state_dir_of
    from ..forward.settings.forward_settings import FORWARD as kind

    return state_dir_of(kind, kind.servers(config_file))


def _console(
    console: str, config: BrokerConfig, state_dir: str | None, token_file: str | None, *, allow_changes: bool
) -> ConsoleChild:
    """The socket on which browsers come, and what answers there once the server serves. Raises a usage error."""
    from ...server.config.broker_settings import registry_needs_login
    from ...server.config.values import Address, is_loopback
    from ..console.process.supervisor import ConsoleChild

    try:
        address = Address.parse(console)
    except ValueError as exc:
        raise click.UsageError(f"--console: {exc}") from exc
    if not is_loopback(address.host) and not config.insecure:
        raise click.UsageError(
            f"--console {address}: other machines can reach it, and nothing is encrypted. To allow it, use --insecure"
        )
    if config.native_security.has_tls:
        raise click.UsageError("--console does not use TLS to the server. Run `triolog console --tls-ca FILE` beside it")
    try:
        changes = ("--allow-changes",) if allow_changes else ()
        links = () if state_dir is None else ("--forward-state-dir", state_dir)
        token = () if token_file is None else ("--control-token-file", token_file)
        decodes = not registry_needs_login(config)
        return ConsoleChild.listen(address, (*changes, *links, *token), decodes=decodes)
    except OSError as exc:
        raise CannotServeError(str(exc)) from exc


def _kinds_of_links(config_file: str | None) -> Mapping[str, LinkKind]:
    """Return the kinds of links that a file has, by name. Bad links are a usage error."""
    names = [] if config_file is None else _link_tables(config_file)
    if config_file is None or not names:
        return {}
    from ..forward.errors import SettingsError
    from ..forward.settings.forward_settings import FORWARD as forward
    from ..ingest.settings import INGEST as ingest

    kinds = {kind.name: kind for kind in (forward, ingest) if kind.name in names}
    for kind in kinds.values():
        try:
            package = kind.package_for(kind.servers(config_file).links)
        except SettingsError as exc:
            raise click.UsageError(str(exc)) from exc
        if package is not None and importlib.util.find_spec(package) is None:
            raise click.UsageError(f"{config_file} has [[{kind.name}]], which needs {package}: {how_to_install(kind.extra)}")
    return kinds


def _mirrors(config_file: str | None) -> tuple[MirrorSettings, ...]:
    """Return the sources of which the server copies topics. Bad tables are a usage error."""
    if config_file is None or MIRROR not in _link_tables(config_file):
        return ()
    from ..forward.errors import SettingsError
    from ..mirror.settings import read_links

    try:
        return read_links(config_file)
    except SettingsError as exc:
        raise click.UsageError(str(exc)) from exc


async def _links_part(config_file: str, kinds: Collection[str], config: BrokerConfig) -> Change:
    """Of kinds of links that the server has begun without."""
    import trio

    from ...server.service.service import Change

    new = [name for name in await trio.to_thread.run_sync(_link_tables, config_file) if name not in kinds]

    def apply() -> None:
        for name in new:
            LOGGER.warning("SIGHUP: needs a restart: [[%s]] is new", name)

    return Change((), apply)


def _link_tables(config_file: str) -> list[str]:
    import tomllib

    with open(config_file, "rb") as stream:
        document = tomllib.load(stream)
    return [name for name in (FORWARD, INGEST, MIRROR) if name in document]


def _forget_generated_source() -> None:
    """Forget the text of the methods that attrs has generated, 1 MiB. It keeps them for tracebacks, which have the names of the
    methods and the numbers of their lines without it."""
    for name in [name for name in linecache.cache if name.startswith(ATTRS_METHODS)]:
        del linecache.cache[name]


@contextlib.contextmanager
def seldom_collecting(thresholds: tuple[int, int, int] = WHILE_STARTING) -> Iterator[None]:
    """For the time of the block, or until the server has started."""
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*USUAL)


def _remove_old(ready_file: str) -> None:
    """Remove the ready file of an earlier server. Raises a usage error instead of replacing a device, a pipe or a link."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(Path(ready_file).lstat().st_mode):
            raise click.UsageError(f"--ready-file {ready_file}: not a regular file. Name another one, or - for standard output")
        Path(ready_file).unlink()


def _started(ready_file: str | None, addresses: Addresses, *, is_first: bool = False) -> None:
    """It serves: report the addresses, and collect garbage as usual from now on. A first server prints what to do next."""
    from ...server.app import write_ready_file
    from .terminal.output import say_lines

    gc.set_threshold(*USUAL)
    if ready_file == STDOUT:
        say_lines(addresses.as_json())
    elif ready_file is not None:
        write_ready_file(ready_file, addresses)
    if is_first and addresses.native is not None:
        kafka, native = addresses.kafka, addresses.native
        say_lines(
            f"kcat     echo hello | kcat -b {kafka} -t greetings -P\n"
            f"Python   python -c \"import triolog; print(triolog.blocking.connect('{native}').topics())\"\n"
            f"console  triolog console -s {native}"
        )


def _check_metrics_extra() -> None:
    """A server that would say nothing of itself is not what was asked for."""
    missing = [name for name in ("prometheus_client", "h11") if importlib.util.find_spec(name) is None]
    if missing:
        raise click.UsageError(f"--metrics needs {' and '.join(missing)}: {how_to_install('metrics')}")


def _check_registry_extra() -> None:
    from ...protocol.errors import InvalidConfigError
    from ...server.registry.opening import check_extra

    try:
        check_extra()
    except InvalidConfigError as exc:
        raise click.UsageError(f"--schema-registry: {exc.message}") from None


def _raise_descriptor_limit() -> None:
    """Use what the process may have: the soft limit is often a leftover of 1,024, and 256 on macOS."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    for limit in (hard, max(soft, OPEN_MAX)) if hard == resource.RLIM_INFINITY else (hard,):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return


def _say_when_connections_are_few(max_connections: int) -> None:
    """A limit that nobody thought of should not be noticed by clients that wait."""
    from ...server.system.open_files import (
        MOST_CONNECTIONS,
        default_max_connections,
        limit_for_most_connections,
        open_files_limit,
    )

    if max_connections >= MOST_CONNECTIONS:
        return
    if max_connections < default_max_connections():
        LOGGER.warning(
            "serving at most %d connections at a time, further ones wait: max_memory_bytes has memory for no "
            "more. To change that, set max_connections.",
            max_connections,
        )
    else:
        LOGGER.warning(
            "serving at most %d connections at a time, further ones wait: the process may open only %d files. "
            "Run ulimit -n %d for %d connections, or set max_connections.",
            max_connections,
            open_files_limit(),
            limit_for_most_connections(),
            MOST_CONNECTIONS,
        )


def _cannot_serve(group: BaseExceptionGroup[BaseException]) -> CannotServeError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    is_taken = getattr(error, "errno", None) == errno.EADDRINUSE
    reason, hint = str(error), ". Choose other ports with --native PORT and --kafka PORT"
    if is_taken:
        reason = reason.removesuffix(". Choose another address") + hint
    return CannotServeError(f"the server cannot start or continue: {reason}")
