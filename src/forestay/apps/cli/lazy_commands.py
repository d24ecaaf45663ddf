"""Groups of commands in which only the command that is called is imported and built.

Typer builds every command of a group before it looks at the arguments, and it imports pydantic to convert the values
of any of them. Both cost more processor time than most commands take, so here a group keeps a table of names, and a
value that needs no conversion is taken as it is.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from forestay.apps.cli.output import painted, wants_colour


class Entry(NamedTuple):
    """A command of a table: the help panel that lists it, and the function that builds it."""

    panel: str
    build: Callable[[], Any]


_INTEGER = re.compile(r"[+-]?[0-9]{1,15}")
_UNFIT = object()


def built(name: str, register: Callable[[typer.Typer], None]) -> Any:
    """The command that was registered under this name."""
    app = typer.Typer(rich_markup_mode=None)
    register(app)
    return get_group(app).commands[name]


class LazyCommands(MutableMapping[str, Any]):
    """The commands of a group by name; each is built when it is first looked up."""

    def __init__(self, table: Mapping[str, Entry] | Callable[[], Mapping[str, Entry]]) -> None:
        """``table`` is the table, or a function that returns it when it is first needed."""
        self._source = table
        self._built: dict[str, Any] = {}

    @cached_property
    def _table(self) -> dict[str, Entry]:
        return dict(self._source() if callable(self._source) else self._source)

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = self._table[name].build()
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._table[name] = Entry("", lambda: command)
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._table[name]
        self._built.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def panels(self) -> dict[str, list[str]]:
        """The names by help panel, in the order of the table."""
        panels: dict[str, list[str]] = {}
        for name, entry in self._table.items():
            panels.setdefault(entry.panel, []).append(name)
        return panels


class PlainValue:
    """Accepts a value that already has its parameter's declared type; Typer converts all others, and reports bad ones."""

    def __init__(self, parameter: Any) -> None:
        described = parameter.type_descriptor
        self.annotation, self.facts = described.annotation, described.parameter_info

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if many and isinstance(value, (tuple, list)) and getattr(self.annotation, "__origin__", None) is list:
            plain: Any = [self._plain(entry, self.annotation.__args__[0]) for entry in value]
            fits = all(entry is not _UNFIT for entry in plain)
        else:
            plain = _UNFIT if many else self._plain(value, self.annotation)
            fits = plain is not _UNFIT
        if fits:
            return plain
        param._runtime_param = None  # noqa: SLF001 - so that the next line builds Typer's own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)

    def _plain(self, value: Any, kind: Any) -> Any:
        if self.facts.parser is not None:
            try:
                return self.facts.parser(value)
            except ValueError:
                return _UNFIT
        if kind in (str, bool) and type(value) is kind:
            return value
        if kind is int and not self.facts.clamp:
            if isinstance(value, str) and _INTEGER.fullmatch(value):
                value = int(value)
            low, high = self.facts.min, self.facts.max
            if type(value) is int and (low is None or value >= low) and (high is None or value <= high):
                return value
        return _UNFIT


def _take_plain_values(command: Any, ctx: Any) -> None:
    for parameter in command.get_params(ctx):
        if getattr(parameter, "_runtime_param", ...) is None:
            parameter._runtime_param = PlainValue(parameter)  # noqa: SLF001 - Typer has no other seam for it


class PlainCommand(TyperCommand):
    """A command whose plain values are taken as they are."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _take_plain_values(self, ctx)
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            _name_all_missing(self, ctx, words, error)
            raise


def _name_all_missing(command: Any, ctx: Any, words: Sequence[str], error: Any) -> None:
    """Report all missing options at once; Typer names only the first, then the next."""
    if type(error).__name__ != "MissingParameter":
        return
    used = {word.partition("=")[0] for word in words}
    missing = [
        param.opts[0]
        for param in command.get_params(ctx)
        if param.required and param is not error.param and param.opts[0].startswith("-") and not used & set(param.opts)
    ]
    if missing:
        error.message = f"Also missing: {', '.join(repr(name) for name in missing)}."


class LazyGroup(TyperGroup):
    """A group whose commands are those of a table; its help lists them by panel."""

    table: ClassVar[Mapping[str, Entry]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: LazyCommands = LazyCommands(self.table)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _take_plain_values(self, ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One section for each panel, all with the same first column."""
        widest = max(map(len, self.commands))
        limit = formatter.width - 6 - widest
        for panel, names in self.commands.panels().items():
            rows = [(name.ljust(widest), self._summary(name, limit)) for name in names]
            with formatter.section(heading(panel or "Commands")):
                formatter.write_dl(rows)

    def _summary(self, name: str, limit: int) -> str:
        return str(self.commands[name].get_short_help_str(limit))


def heading(text: str) -> str:
    return painted(text, ("bold",)) if wants_colour(sys.stdout, os.environ) else text


class CommandGroup(LazyGroup):
    """A command with sub-commands. One of them may be the default: it is used when options, or nothing, follow."""

    def __init__(self, name: str, summary: str, table: Mapping[str, Entry], *, default: str = "") -> None:
        super().__init__(name=name, help=summary, rich_markup_mode=None, no_args_is_help=not default)
        self.commands = LazyCommands(table)
        self.default = default

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options_only = not args or (args[0].startswith("-") and args[0] != "--help")
        if self.default and options_only and not ctx.resilient_parsing:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _summary(self, name: str, limit: int) -> str:
        mark = " (default)" if name == self.default else ""
        return super()._summary(name, limit - len(mark)).removesuffix("." if mark else "") + mark


class PackageGroup(CommandGroup):
    """A command whose sub-commands are in an optional package, which is loaded when one of them is called or listed."""

    def __init__(self, name: str, summary: str, table: Callable[[], Mapping[str, Entry]]) -> None:
        super().__init__(name, summary, {})
        self.commands = LazyCommands(table)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from forestay.apps.flow_formats import NotInstalled

        try:
            iter(self.commands)
        except NotInstalled as error:
            typer.echo(f"forestay: {error}", err=True)
            ctx.exit(1)
        return super().parse_args(ctx, args)


class RootGroup(LazyGroup):
    """The `forestay` command: without arguments it prints its first screen."""

    screen: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The commands that the first screen describes, by panel; it only lists the names of the others."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo("\n".join(self.first_screen(ctx.command.help or "")))
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def first_screen(self, summary: str) -> Iterator[str]:
        """The lines printed for `forestay` without arguments."""
        panels = self.commands.panels()
        left, middle = max(map(len, panels)) + 2, max(map(len, self.commands)) + 2
        yield summary
        for panel, names in panels.items():
            yield ""
            explained = [name for name in self.screen.get(panel, ()) if name in names]
            lines = [f"{name:<{middle}}{self._summary(name, 200)}" for name in explained]
            others = [name for name in names if name not in explained]
            lines += _wrapped(", ".join(others), 98 - left)
            for number, line in enumerate(lines):
                yield (heading(panel) + " " * (left - len(panel)) if number == 0 else " " * left) + line
        yield ""
        yield "`forestay COMMAND --help` explains a command; `forestay --help` lists them all."


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, break_on_hyphens=False)
