"""The grammar of the command line: groups and options that also accept other spellings, and errors that name the nearest one.

Other spellings are those of an earlier release, of Kafka's scripts, kcat, rpk, nats and redis-cli. They work and are not shown.
An error of the command line is one line: what is wrong, and what to write instead.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "ls": ("list",),
    "rm": ("delete", "remove"),
    "delete": ("remove",),
    "remove": ("delete",),
    "add": ("create", "set"),
    "create": ("add",),
    "new": ("create", "add"),
    "show": ("describe", "list"),
    "alter-config": ("alter",),
    "set-config": ("alter",),
    "trim-prefix": ("trim",),
    "seek": ("reset",),
    "reset-offsets": ("reset",),
    "pub": ("produce",),
    "publish": ("produce",),
    "console-producer": ("produce",),
    "sub": ("consume",),
    "subscribe": ("consume",),
    "console-consumer": ("consume",),
    "consumer-groups": ("groups",),
    "get-offsets": ("offsets",),
    "dump-log": ("dump",),
    "log-dirs": ("du",),
    "server": ("serve",),
    "start": ("serve",),
    "server-start": ("serve",),
    "info": ("status",),
    "ping": ("status",),
    "client": ("connections",),
    "duckdb": ("sql",),
}
"""By a word that others have for a command: ours, the first that the group has."""

ELSEWHERE: Final[Mapping[str, str]] = {
    "create": "topics create NAME",
    "list": "topics list",
    "describe": "topics describe NAME",
    "alter": "topics alter NAME --config KEY=VALUE",
    "configs": "topics alter NAME --config KEY=VALUE",
    "delete": "topics delete NAME",
    "trim": "topics trim NAME --offset POSITION",
    "lag": "groups describe GROUP",
    "reset": "groups reset GROUP TOPIC --offset POSITION",
    "cluster": "status",
    "health": "status",
    "stream": "topics",
    "security": "users",
    "xadd": "produce TOPIC -m MESSAGE",
    "lpush": "produce TOPIC -m MESSAGE",
    "xread": "consume TOPIC",
    "xrange": "consume TOPIC",
    "xlen": "offsets TOPIC",
    "-C": "consume TOPIC",
    "-P": "produce TOPIC",
    "-L": "topics list",
    "-Q": "offsets TOPIC --offset POSITION",
}
"""Words at a place where no command of ours belongs, and the command that does the same."""

NAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("--topic", "-t"),
    "name": ("--topic", "-t", "--name"),
    "group": ("--group", "-g", "--group-id"),
    "principal": ("--allow-principal", "--principal"),
}
"""Options in which others name what is an argument here, by the argument."""


class Option(click.Option):
    """An option with more spellings, which work and are not shown: `also` take a value like it, `times` take a time in which a
    number is in milliseconds, `means` stand for a value."""

    def __init__(
        self,
        *args: Any,
        also: Iterable[str] = (),
        times: Iterable[str] = (),
        means: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._also = list(also)
        self._times = list(times)
        self._means = dict(means or {})

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown, self.opts = self.opts, [*self.opts, *self._also]
        super().add_to_parser(parser, ctx)
        self.opts = shown
        if self._times:
            parser.add_option(obj=self, opts=self._times, dest=f"{self.name}:time")
        for spelling, value in self._means.items():
            action = "append_const" if self.multiple else "store_const"
            parser.add_option(obj=self, opts=[spelling], dest=self.name, action=action, const=value)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        time = opts.get(f"{self.name}:time")
        if time is not None:
            name = self.name or ""
            position = f"s@{time}" if time.isdigit() else time
            if name in opts and not self.multiple:
                raise click.UsageError(f"{' and '.join((self.opts[-1], *self._times))} exclude each other", ctx)
            opts = {**opts, name: [*opts.get(name, ()), position] if self.multiple else position}
        return super().consume_value(ctx, opts)


def option(*names: str, **how: Any) -> Any:
    """As `click.option`, with the spellings of `Option`."""
    return click.option(*names, cls=Option, **how)


def ignored(*names: str, takes_value: bool = False) -> Any:
    """Options of other programs that ask for what is done anyway."""
    return click.option(*names, is_flag=not takes_value, multiple=takes_value, hidden=True, expose_value=False)


class Group(click.Group):
    """A group that finds its commands by other spellings too, and names the nearest one for a word that is none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._verb_first(ctx, args))

    def _verb_first(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`--create --topic t` as `create --topic t`: Kafka's scripts have commands as options."""
        options = {name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)}
        if not args or not args[0].startswith("-") or options & set(args):
            return args
        verbs = {f"--{name}": name for name in self.list_commands(ctx)}
        place = next((at for at, arg in enumerate(args) if arg in verbs), None)
        return args if place is None else [verbs[args[place]], *args[:place], *args[place + 1 :]]

    def find(self, ctx: click.Context, word: str) -> str | None:
        """Return the name of the command that a word means."""
        word = word.lower().replace("_", "-").removesuffix(".sh").removeprefix("kafka-")
        there = self.list_commands(ctx)
        spellings = (word, f"{word}s", word.removesuffix("s"), *SYNONYMS.get(word, ()))
        return next((each for each in spellings if each in there), None)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        word, *rest = args
        name = self.find(ctx, word)
        command = None if name is None else self.get_command(ctx, name)
        if command is not None:
            return name, command, _with_arguments_placed(command, ctx, rest)
        if ctx.resilient_parsing:
            return None, None, rest
        if word.startswith("-"):
            self.parse_args(ctx, args)  # raises what click says of an option that is not there
        raise click.UsageError(f"no such command {word!r}. {self._hint(ctx, word)}", ctx)

    def _hint(self, ctx: click.Context, word: str) -> str:
        root = ctx.find_root()
        if near := nearest(word, self.list_commands(ctx)):
            return _did_you_mean([f"{ctx.command_path} {near[0]}"])
        assert isinstance(root.command, Group)
        if root is not ctx and (found := root.command.find(root, word)) is not None:
            return _did_you_mean([f"{root.command_path} {found}"])
        if word in ELSEWHERE:
            return _did_you_mean([f"{root.command_path} {ELSEWHERE[word]}"])
        return f"`{ctx.command_path} -h` lists the commands"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(1000)) for name, each in commands if each is not None and not each.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _with_arguments_placed(command: click.Command, ctx: click.Context, args: list[str]) -> list[str]:
    """`--topic t` as `t` where the topic is an argument of the command."""
    options = {name for param in command.get_params(ctx) if isinstance(param, click.Option) for name in param.opts}
    placed: list[str] = []
    for param in command.params:
        if not isinstance(param, click.Argument):
            continue
        spellings = set(NAMED.get((param.name or "").removesuffix("s"), ())) - options
        while (place := next((at for at, arg in enumerate(args[:-1]) if arg in spellings), None)) is not None:
            placed.append(args[place + 1])
            args = args[:place] + args[place + 2 :]
    return [*placed, *args]


def complete_address(text: str, default: str) -> str:
    """`HOST:PORT` for `HOST`, `PORT` or `[IPV6]`; the part that is missing is that of the default."""
    text = text.rpartition("://")[2].rstrip("/")
    if text.isdigit():
        text = f":{text}"
    elif ":" not in text.rpartition("]")[2] or (text.count(":") > 1 and "[" not in text):
        text = f"{text}:"
    host, _, port = text.rpartition(":")
    default_host, _, default_port = default.rpartition(":")
    return f"{host or default_host}:{port or default_port}"


def _did_you_mean(lines: list[str]) -> str:
    return f"Did you mean {' or '.join(f'`{line}`' for line in lines)}?"


OPTIONS_ELSEWHERE: Final[Mapping[tuple[str, str], str]] = {
    ("serve", "--port"): "--kafka PORT (for Kafka clients), or --native PORT (for triolog's commands and clients)",
    ("serve", "--host"): "--kafka HOST:PORT and --native HOST:PORT",
    ("serve", "--bind"): "--kafka HOST:PORT and --native HOST:PORT",
    ("add", "--deny-principal"): "PRINCIPAL --deny",
    ("add", "--password"): "--new-password-file FILE (- is standard input)",
}
"""By command and an option that it has not: what does the same."""


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Make each error of the command line inside one line that names the nearest spelling."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as exc:
        raise _one_line(exc) from exc


def _one_line(exc: click.UsageError) -> click.UsageError:
    from .output import printable

    ctx, hint = exc.ctx, ""
    text = " ".join(exc.format_message().split())
    if ctx is not None:
        text, hint = _with_hint(exc, text, ctx)
    error = click.UsageError(printable(f"{text} {hint}".rstrip()))  # without a context: no usage is printed before it
    error.exit_code = exc.exit_code
    return error


def _with_hint(exc: click.UsageError, text: str, ctx: click.Context) -> tuple[str, str]:
    help_hint = f"`{ctx.command_path} -h` lists the options"
    if isinstance(exc, click.NoSuchOption):
        return f"{ctx.command_path} has no option {exc.option_name}.", _option_hint(exc.option_name, ctx) or help_hint
    if isinstance(exc, click.MissingParameter):
        return text, f"Usage: {ctx.command_path} {' '.join(ctx.command.collect_usage_pieces(ctx))}"
    choices = getattr(getattr(exc, "param", None), "type", None)
    if isinstance(choices, click.Choice) and (wrong := re.search(r"'([^']*)' is not one of", text)) is not None:
        near = nearest(wrong[1].lower(), map(str, choices.choices))
        return text, f"Did you mean {near[0]}?" if near else ""
    if text.startswith("Got unexpected extra argument"):
        return text, f"Usage: {ctx.command_path} {' '.join(ctx.command.collect_usage_pieces(ctx))}"
    return text, ""


def _option_hint(name: str, ctx: click.Context) -> str:
    root = ctx.find_root()
    if (known := OPTIONS_ELSEWHERE.get((ctx.info_name or "", name))) is not None:
        return f"Did you mean {known}?"
    if root is ctx and name in ELSEWHERE:
        return _did_you_mean([f"{ctx.command_path} {ELSEWHERE[name]}"])
    options = [param for param in ctx.command.get_params(ctx) if isinstance(param, click.Option) and not param.hidden]
    spellings = [each for param in options for each in (*param.opts, *param.secondary_opts)]
    if near := nearest(name, [each for each in spellings if each.startswith("--")]):
        return f"Did you mean {' or '.join(near[:2])}?"
    return "Options follow the command, as in `triolog topics list --server localhost`" if root is ctx else ""


def nearest(word: str, words: Iterable[str]) -> list[str]:
    """Return the words that a misspelled word may mean, the most similar first."""
    from difflib import get_close_matches

    return get_close_matches(word, list(words))
