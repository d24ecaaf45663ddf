"""A group of commands in which only the command that is called is imported and built.

Typer builds every command of a group before it looks at the arguments, and it imports pydantic to convert the values
of any of them. Both cost more processor time than most commands take, so here a group keeps a table of names, and a
value that needs no conversion is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

Register = Callable[[typer.Typer], None]
"""Adds one command to an application."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,15}")
_UNFIT = object()


class LazyCommands(MutableMapping[str, Any]):
    """The commands of a group by their names; each is built when it is first looked up."""

    def __init__(self, table: Mapping[str, Register]) -> None:
        self._table = dict(table)
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            app = typer.Typer(rich_markup_mode=None)
            self._table[name](app)
            self._built[name] = get_group(app).commands[name]
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._table[name] = lambda _: None
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._table[name]
        self._built.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class PlainValue:
    """Takes over a value that is already what its parameter declares; Typer converts all others, and reports bad ones."""

    def __init__(self, parameter: Any) -> None:
        described = parameter.type_descriptor
        self.annotation, self.facts = described.annotation, described.parameter_info

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if many and isinstance(value, (tuple, list)) and getattr(self.annotation, "__origin__", None) is list:
            plain: Any = [self._plain(item, self.annotation.__args__[0]) for item in value]
            fits = all(item is not _UNFIT for item in plain)
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
        return super().parse_args(ctx, args)


class LazyGroup(TyperGroup):
    """A group whose commands are those of a table."""

    table: ClassVar[Mapping[str, Register]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands(self.table)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _take_plain_values(self, ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)
