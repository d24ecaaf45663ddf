"""The `forestay` command: what users do, and the processes that operators start."""
# ruff: noqa: E402 - the collector is set before anything is imported

from __future__ import annotations

import gc

# A start creates hundreds of thousands of objects that all stay. By default the collector goes through them again and
# again, which is a fifth of the processor time of a start.
gc.set_threshold(100_000, 50, 50)

import sys

# httpx imports the libraries of its own command line wherever they are installed; this process does not need them.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

from typing import Annotated

import typer

from forestay.apps import cli, processes
from forestay.apps.cli.lazy_commands import RootGroup
from forestay.ports.errors import PortError, Transient


class _AllCommands(RootGroup):
    table = cli.in_order(processes.COMMANDS | cli.COMMANDS)
    screen = cli.SCREEN


app = typer.Typer(
    cls=_AllCommands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
    epilog="docs/reference/glossary.md explains the terms.",
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"forestay {version('forestay')}\n")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Forestay keeps job flows going when jobs, nodes, data, networks and schedulers fail."""


def main() -> None:
    """Run the command; an error of the environment is printed as one line that says what to do."""
    try:
        app()
    except PortError as error:
        sys.stderr.write(f"forestay: {error}\n")
        sys.exit(6 if isinstance(error, Transient) else 1)
    except ModuleNotFoundError as error:
        from forestay.apps.extras import missing_extra

        missing = missing_extra(error)
        if missing is None:
            raise
        sys.stderr.write(f"forestay: {missing}\n")
        sys.exit(1)
