"""`forestay export`: how a case's results came about, to be kept or published."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.run import CASE
from forestay.apps.cli.session import Session


def export(
    session: Session,
    case: Annotated[str, CASE],
    to: Annotated[
        Path,
        typer.Option("--to", metavar="PATH", help="A new folder, or a file that ends in .zip.", show_default=False),
    ],
    licence: Annotated[
        str, typer.Option("--license", metavar="LICENCE", help="Under what others may use it: an address or a name.")
    ] = "not stated",
) -> int:
    """Write a case as an RO-Crate. Flow, parameters, every attempt, what went wrong and which rule answered it.

    forestay export 4f1c9d2a --to run.crate.zip --license https://spdx.org/licenses/CC-BY-4.0
    """
    from forestay.client.api.provenance import TooLarge, ro_crate

    if to.exists():
        raise typer.BadParameter(f"{to} is there already", param_hint="--to")
    name = session.case(case)
    try:
        files = ro_crate(session.client, name, licence=licence)
    except TooLarge as error:
        raise typer.BadParameter(str(error), param_hint="CASE") from error
    if to.suffix == ".zip":
        with zipfile.ZipFile(to, "x", zipfile.ZIP_DEFLATED) as archive:
            for file, data in files.items():
                archive.writestr(file, data)
    else:
        to.mkdir(parents=True)
        for file, data in files.items():
            (to / file).write_bytes(data)
    if session.out.as_json:
        session.out.document({"case": name, "path": str(to), "files": sorted(files)})
    else:
        session.out.data(neutral.line(f"{to} holds the case {name} as an RO-Crate"))
    return ExitCode.OK
