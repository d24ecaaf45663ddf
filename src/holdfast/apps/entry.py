"""The `holdfast` command: what users do, and the processes that operators start."""

from __future__ import annotations

import sys

import typer

from holdfast.apps import cli, processes
from holdfast.ports.errors import PortError, Transient

app = typer.Typer(
    help="Keeps job flows going when jobs, nodes, data, networks and schedulers fail.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(cli.app)
app.add_typer(processes.app)


def main() -> None:
    """Run the command; an error of the outside is one line that says what to do."""
    try:
        app()
    except PortError as error:
        sys.stderr.write(f"holdfast: {error}\n")
        sys.exit(6 if isinstance(error, Transient) else 1)
