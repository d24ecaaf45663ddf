"""`forestay runs export`: the provenance of a run's results, to be archived or published."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.run import RUN
from forestay.apps.cli.session import Session


def export(
    session: Session,
    run: Annotated[str, RUN],
    to: Annotated[
        Path,
        typer.Option("--to", metavar="PATH", help="A new folder, or a file that ends in .zip.", show_default=False),
    ],
    licence: Annotated[
        str, typer.Option("--license", metavar="LICENCE", help="The licence: a URL or a name.")
    ] = "not stated",
) -> int:
    """Export a run as an RO-Crate. Flow, parameters, every attempt, failures, and the rules that answered them.

    forestay runs export 4f1c9d2a --to run.crate.zip --license https://spdx.org/licenses/CC-BY-4.0
    """
    from forestay.client.api.provenance import TooLarge, ro_crate

    if to.exists():
        raise typer.BadParameter(f"{to} exists already", param_hint="--to")
    name = session.flow_run(run)
    try:
        files = ro_crate(session.client, name, licence=licence)
    except TooLarge as error:
        raise typer.BadParameter(str(error), param_hint="RUN") from error
    if to.suffix == ".zip":
        with zipfile.ZipFile(to, "x", zipfile.ZIP_DEFLATED) as archive:
            for file, data in files.items():
                archive.writestr(file, data)
    else:
        to.mkdir(parents=True)
        for file, data in files.items():
            (to / file).write_bytes(data)
    if session.out.as_json:
        session.out.document({"run": name, "path": str(to), "files": sorted(files)})
    else:
        session.out.data(neutral.line(f"Run {name} was written to {to} as an RO-Crate"))
    return ExitCode.OK
