"""The grammar of the command line: groups and options that also accept other spellings, and errors that name the nearest one.

Other spellings are those of an earlier release, of Kafka's scripts, kcat, rpk, nats and redis-cli. They work and are not shown.
An error of the command line is one line with the fault and the right spelling.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "ls": ("list",),
    "rm": ("delete", "remove"),
    "delete": ("remove",),
    "remove": ("delete",),
    "add": ("create", "set"),
    "create": ("add",),
    "new": ("create", "add"),
    "show": ("describe", "list"),
    "get": ("show", "describe"),
    "info": ("describe", "status"),
    "alter-config": ("alter",),
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
    "consumer": ("groups",),
    "stream": ("topics",),
    "get-offsets": ("offsets",),
    "dump-log": ("dump",),
    "log-dirs": ("du",),
    "server": ("serve",),
    "start": ("serve",),
    "server-start": ("serve",),
    "ping": ("status",),
}
"""By a word that others have for a command: ours, the first that the group has."""

MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "-C": ("consume",),
    "-P": ("produce",),
    "-L": ("topics", "list"),
    "-Q": ("offsets",),
}
"""The commands of kcat, which are options there."""

ELSEWHERE: Final[Mapping[str, str]] = {
    "create": "topics create NAME",
    "list": "topics list",
    "describe": "topics describe NAME",
    "alter": "topics alter NAME --config KEY=VALUE",
    "kafka-configs": "topics alter NAME --config KEY=VALUE",
    "delete": "topics delete NAME",
    "del": "topics delete NAME",
    "trim": "topics trim NAME --offset POSITION",
    "lag": "groups describe GROUP",
    "reset": "groups reset GROUP TOPIC --offset POSITION",
    "cluster": "status",
    "health": "status",
    "monitor": "top",
    "client": "connections",
    "security": "users` or `triolog acls",
    "kcat": "consume TOPIC",
    "xadd": "produce TOPIC -m MESSAGE",
    "lpush": "produce TOPIC -m MESSAGE",
    "xread": "consume TOPIC",
    "xrange": "consume TOPIC",
    "xlen": "offsets TOPIC",
}
"""Words at a place where no command of ours belongs, and the command that does the same."""

NAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("--topic", "-t", "--topics"),
    "name": ("--topic", "-t", "--name"),
    "group": ("--group", "-g", "--group-id"),
    "principal": ("--allow-principal", "--principal"),
}
"""By an argument: options of other programs that give it."""


class Option(click.Option):
    """An option with more spellings, which work and are not shown: `also` take a value like it, `others` one that `read_other`
    translates, `means` stand for a value."""

    def __init__(
        self,
        *args: Any,
        also: Iterable[str] = (),
        others: Iterable[str] = (),
        read_other: Callable[[str], str] = str,
        means: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._also, self._others, self._means = list(also), list(others), dict(means or {})
        self._read_other = read_other

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown, self.opts = self.opts, [*self.opts, *self._also]
        super().add_to_parser(parser, ctx)
        self.opts = shown
        if self._others:
            parser.add_option(obj=self, opts=self._others, dest=f"{self.name}:other")
        for spelling, value in self._means.items():
            action = "append_const" if self.multiple else "store_const"
            parser.add_option(obj=self, opts=[spelling], dest=self.name, action=action, const=value)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        other, name = opts.get(f"{self.name}:other"), self.name or ""
        if other is not None:
            if name in opts and not self.multiple:
                raise click.UsageError(f"{' and '.join((self.opts[-1], *self._others))} exclude each other", ctx)
            value = self._read_other(other)
            opts = {**opts, name: [*opts.get(name, ()), value] if self.multiple else value}
        return super().consume_value(ctx, opts)


def option(*names: str, **how: Any) -> Callable[[F], F]:
    """As `click.option`, with the spellings of `Option`."""
    return click.option(*names, cls=Option, **how)


def ignored(*names: str, takes_value: bool = False) -> Callable[[F], F]:
    """Options of other programs that change nothing here."""
    return click.option(*names, is_flag=not takes_value, multiple=takes_value, hidden=True, expose_value=False)


class Group(click.Group):
    """A group that finds its commands by other spellings too, and names the nearest one for a wrong word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._verb_first(ctx, args))

    def _verb_first(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`create --topic t` for `--create --topic t`: Kafka's scripts and kcat have commands as options."""
        options = {name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)}
        if not args or not args[0].startswith("-") or options & set(args):
            return args
        for place, arg in enumerate(args):
            if ctx.parent is None:
                verb = MODES.get(arg)
            else:
                verb = (found,) if arg.startswith("--") and (found := self.find(ctx, arg[2:])) else None
            if verb is not None:
                return [*verb, *args[:place], *args[place + 1 :]]
        return args

    def find(self, ctx: click.Context, word: str) -> str | None:
        """Return the name of the command that a word means."""
        if ctx.parent is None and word.removesuffix(".sh") in ELSEWHERE:
            return None
        word = _plain(word)
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
            self.parse_args(ctx, args)  # raises click's error for an unknown option
        raise click.UsageError(f"no such command {word!r}. {self._hint(ctx, word)}", ctx)

    def _hint(self, ctx: click.Context, word: str) -> str:
        root = ctx.find_root()
        plain = word.lower().removesuffix(".sh")
        if ctx.parent is None and plain in ELSEWHERE:
            return _did_you_mean(f"{root.command_path} {ELSEWHERE[plain]}")
        if near := nearest(plain, self.list_commands(ctx)):
            return _did_you_mean(f"{ctx.command_path} {near[0]}")
        assert isinstance(root.command, Group)
        if root is not ctx and (found := root.command.find(root, word)) is not None:
            return _did_you_mean(f"{root.command_path} {found}")
        return f"`{ctx.command_path} -h` lists the commands"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(1000)) for name, each in commands if each is not None and not each.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _with_arguments_placed(command: click.Command, ctx: click.Context, args: list[str]) -> list[str]:
    """Put `t` for `--topic t` where the topic is an argument of the command: after arguments that come before it."""
    options = {name for param in command.get_params(ctx) if isinstance(param, click.Option) for name in param.opts}
    first: list[str] = []
    last: list[str] = []
    is_named = True
    for param in command.params:
        if not isinstance(param, click.Argument):
            continue
        spellings = set(NAMED.get((param.name or "").removesuffix("s"), ())) - options
        places = [at for at, arg in enumerate(args[:-1]) if arg in spellings]
        is_named = is_named and bool(places)
        (first if is_named else last).extend(args[at + 1] for at in places)
        args = [arg for at, arg in enumerate(args) if at not in places and at - 1 not in places]
    return [*first, *args, *last]


def complete_address(text: str, default: str) -> str:
    """`HOST:PORT` for `HOST`, `PORT` or `[IPV6]`: a missing part is the default's. A text that stays incomplete is returned."""
    given = text
    text = text.rpartition("://")[2].rstrip("/")
    if text.isdigit():
        text = f":{text}"
    elif ":" not in text.rpartition("]")[2] or (text.count(":") > 1 and "[" not in text):
        text = f"{text}:"
    host, _, port = text.rpartition(":")
    default_host, _, default_port = default.rpartition(":")
    return f"{host or default_host}:{port or default_port}" if port or default_port else given


def _plain(word: str) -> str:
    """`console-consumer` for `kafka-console-consumer.sh`."""
    return word.lower().replace("_", "-").removesuffix(".sh").removeprefix("kafka-")


def _did_you_mean(line: str) -> str:
    return f"Did you mean `{line}`?"


OPTIONS_ELSEWHERE: Final[Mapping[tuple[str, str], str]] = {
    ("serve", "--port"): "--kafka PORT (for Kafka clients), or --native PORT (for triolog's commands and clients)",
    ("serve", "--host"): "--kafka HOST:PORT and --native HOST:PORT",
    ("serve", "--bind"): "--kafka HOST:PORT and --native HOST:PORT",
    ("alter", "--partitions"): "`triolog topics add-partitions NAME TOTAL`",
    ("add-partitions", "-n"): "`triolog topics add-partitions NAME TOTAL`, where TOTAL counts the old ones too",
    ("dump", "--files"): "`triolog dump PATH`",
    ("add", "--deny-principal"): "PRINCIPAL --deny",
    ("add", "--password"): "--new-password-file FILE (- is standard input)",
}
"""By command and an unknown option: the spelling that does the same."""


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
    return click.UsageError(printable(f"{text} {hint}".rstrip()))  # without a context: no usage is printed before it


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
    options = [param for param in ctx.command.get_params(ctx) if isinstance(param, click.Option) and not param.hidden]
    spellings = [each for param in options for each in (*param.opts, *param.secondary_opts)]
    if near := nearest(name, [each for each in spellings if each.startswith("--")]):
        return f"Did you mean {' or '.join(near[:2])}?"
    return "Options follow the command, as in `triolog topics list --server localhost`" if root is ctx else ""


def nearest(word: str, words: Iterable[str]) -> list[str]:
    """Return the words that a misspelled word may mean, the most similar first."""
    from difflib import get_close_matches

    return get_close_matches(word, list(words))
