"""`forestay pilots enrol`: a secret with which one pilot may register, once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from forestay.apps.cli.amounts import moment
from forestay.apps.cli.command import seconds
from forestay.apps.cli.session import Session


def enrol(
    session: Session,
    site: Annotated[str, typer.Option("--site", metavar="NAME", help="The pilot's site.")] = "local",
    launch: Annotated[
        str, typer.Option("--launch", metavar="ID", help="The launch it is for; a site agent fills this in.")
    ] = "",
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="NAME", help="The pilot gets the jobs of this owner only.")
    ] = None,
    good_for: Annotated[
        float, typer.Option("--for", metavar="TIME", parser=seconds, help="How long it is valid (1h).")
    ] = 3600.0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it to this new file, readable only by you.")
    ] = None,
) -> None:
    """Create a secret with which one pilot may register, once. It is shown only now (operators, sites).

    forestay pilots enrol --site cluster --for 12h --out pilot.secret
    """
    from forestay.client.api import calls

    made = session.client.send(calls.enrol(site, launch=launch, seconds=int(good_for), owner=owner))
    if out is not None:
        with os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{made['secret']}\n")
        if session.out.as_json:
            session.out.document({"file": str(out), "expires": made["expires"]})
        else:
            session.out.say(f"One pilot may register with {out} until {moment(made['expires'])}.")
    elif session.out.as_json:
        session.out.document(made)
    else:
        session.out.data(made["secret"])
