"""`forestay licences`: counted licences, their seats, and the jobs that hold them."""

from __future__ import annotations

from typing import Annotated

import typer

from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session

NAME = typer.Argument(metavar="NAME", help="The licence, as jobs name it.")


@lists
def list_licences(session: Session) -> int:
    """List licences with their seats, and which of your jobs have them.

    forestay licences list
    """
    from forestay.client.api import host_calls

    session.print_list(
        "licences", session.client.send(host_calls.licences())["licences"],
        [Column("LICENCE"), Column("SEATS", right=True), Column("USED", right=True), Column("FREE", right=True), Column("JOBS", flexible=True)],
        lambda licence: [
            str(licence["name"]), str(licence["seats"]), str(licence["used"]), str(licence["free"]),
            " ".join(short(str(holder["job"])) for holder in licence["holders"]),
        ],
        key=lambda licence: str(licence["name"]), empty="There are no licences.",
    )  # fmt: skip
    return ExitCode.OK


def set_licence(
    session: Session,
    name: Annotated[str, NAME],
    seats: Annotated[int, typer.Argument(min=0, max=10_000, metavar="N", help="Seats in the whole domain.")],
) -> int:
    """Set the number of seats of a licence. Running jobs keep theirs.

    forestay licences set matlab 5
    """
    from forestay.client.api import host_calls

    licence = session.client.send(host_calls.set_licence(name, seats))
    if session.out.as_json:
        session.out.document(licence)
    else:
        session.out.say(f"Licence {licence['name']} has {licence['seats']} seats; {licence['used']} in use.")
    return ExitCode.OK


def remove_licence(session: Session, name: Annotated[str, NAME]) -> int:
    """Remove a licence of which no seat is in use.

    forestay licences remove matlab
    """
    from forestay.client.api import host_calls

    session.client.send(host_calls.remove_licence(name))
    session.out.say(f"Licence {name} is removed.")
    return ExitCode.OK
