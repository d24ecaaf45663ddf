"""Builds a command from a function: the common options, and the exit code."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from forestay.apps.cli.amounts import parse_duration
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.lazy_commands import PlainCommand
from forestay.apps.cli.session import Options, Session

F = TypeVar("F", bound=Callable[..., Any])


def seconds(text: str) -> float:
    """A duration for options in which a bare number means seconds."""
    try:
        return float(text)
    except ValueError:
        try:
            return float(parse_duration(text))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error


FORMS = ("wide", "json", "name")


def form(text: str) -> str:
    """The form of a list."""
    if text not in FORMS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(FORMS)}")
    return text


COMMON: dict[str, tuple[object, object]] = {
    "as_json": (Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and errors as JSON on stderr.")], False),
    "server": (
        Annotated[str | None, typer.Option("--server", metavar="URL", help="The server; separate several with commas.")],
        None,
    ),
    "token_file": (
        Annotated[Path | None, typer.Option("--token-file", metavar="FILE", help="File with your token, readable only by you.")],
        None,
    ),
    "patience": (
        Annotated[
            float | None,
            typer.Option("--patience", metavar="TIME", parser=seconds, help="How long to retry while the server does not answer (30s)."),
        ],
        None,
    ),
    "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="Suppress progress messages.")], False),
    "verbose": (Annotated[bool, typer.Option("--verbose", "-v", help="Print more progress messages.")], False),
}  # fmt: skip
FORM: tuple[object, object] = (
    Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="|".join(FORMS),
            parser=form,
            help="wide: all columns, whole ids and times; json; name: only ids or names.",
        ),
    ],
    None,
)
"""The option of commands that print a list."""
LISTS: set[Callable[..., Any]] = set()


def lists(function: F) -> F:
    """Marks a command that prints a list."""
    LISTS.add(function)
    return function


def add_command(app: typer.Typer, name: str, **settings: Any) -> Callable[[Callable[..., Any]], None]:
    """Register a function as the command of that name. Its first parameter is the session; it returns an exit code, or None for 0."""

    def register(function: Callable[..., Any]) -> None:
        hints = get_type_hints(function, include_extras=True)
        _, *own = inspect.signature(function).parameters.values()
        common = ({"form": FORM} if function in LISTS else {}) | COMMON
        parameters = [
            inspect.Parameter(
                parameter.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=parameter.default,
                annotation=hints[parameter.name],
            )
            for parameter in own
        ] + [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for key, (kind, default) in common.items()
        ]

        def call(**fields: Any) -> None:
            options = Options(**{key: fields.pop(key) for key in common})
            raise typer.Exit(run(function, Session(options), fields))

        call.__name__ = function.__name__
        call.__doc__ = function.__doc__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name, cls=PlainCommand, **settings)(call)

    return register


def run(function: Callable[..., ExitCode | int | None], session: Session, arguments: dict[str, Any]) -> int:
    """Call the command; whatever happens becomes an exit code."""
    try:
        try:
            return int(function(session, **arguments) or 0)
        finally:
            session.close()
            sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Nothing more can be written, not even at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        from forestay.client import ClientError

        if not isinstance(error, ClientError):
            raise
        return session.report(error)
