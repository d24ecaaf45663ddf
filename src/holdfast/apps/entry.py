"""The `holdfast` command: what users do, and the processes that operators start."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.apps import cli, processes
from holdfast.ports.errors import PortError, Transient

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"holdfast {version('holdfast')}\n")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keeps job flows going when jobs, nodes, data, networks and schedulers fail."""


app.add_typer(cli.app)
app.add_typer(processes.app)


def main() -> None:
    """Run the command; an error of the outside is one line that says what to do."""
    try:
        app()
    except PortError as error:
        sys.stderr.write(f"holdfast: {error}\n")
        sys.exit(6 if isinstance(error, Transient) else 1)
