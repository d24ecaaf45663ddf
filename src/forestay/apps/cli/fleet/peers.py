"""`forestay peers`: the other domains to which sub-flows may be sent and from which they come."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

PEER = typer.Argument(metavar="PEER", help="What this domain calls the peer.")


@lists
def list_peers(session: Session) -> int:
    """List this domain's peers.

    forestay peers list
    """
    from forestay.client.api import peer_calls

    columns = [
        Column("PEER"), Column("URL", flexible=True), Column("TAKES", flexible=True), Column("SENDS", flexible=True), Column("LEASE", right=True),
        Column("LINK"), Column("FREE", right=True),
    ]  # fmt: skip
    session.print_list(
        "peers", session.client.send(peer_calls.peers())["peers"], columns, _row, key=lambda peer: str(peer["peer"]),
        empty="No peers. To add one: forestay peers add --help",
    )  # fmt: skip
    return ExitCode.OK


def _row(peer: dict[str, Any]) -> list[str]:
    return [
        peer["peer"],
        peer["url"],
        ", ".join(f"{theirs}={ours}" for theirs, ours in sorted(peer["tenants"].items())) or "-",
        ", ".join(peer["sends"]) or "-",
        f"{peer['lease']} s",
        "up" if peer["connected"] else "-",
        f"{peer['free']}/{peer['slots']}",
    ]


def key(session: Session) -> int:
    """Print this domain's public key, for the administrators of a peer.

    forestay peers key
    """
    from forestay.client.api import peer_calls

    own = session.client.send(peer_calls.peers())["key"]
    if session.out.as_json:
        session.out.document({"key": own})
    else:
        session.out.data(own)
    return ExitCode.OK


def add(
    session: Session,
    peer: Annotated[str, PEER],
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The address of its server.")],
    key_file: Annotated[
        Path, typer.Option("--key", metavar="FILE", help="Its public key, as its `forestay peers key` prints it.")
    ],
    tenant: Annotated[
        list[str] | None,
        typer.Option("--tenant", metavar="THEIRS=OURS", help="One of its tenants, and our tenant for it; repeatable."),
    ] = None,
    sends: Annotated[
        list[str] | None,
        typer.Option("--sends", metavar="OURS", help="A tenant of ours whose sub-flows may go there; repeatable."),
    ] = None,
    lease: Annotated[
        int, typer.Option("--lease", metavar="SECONDS", min=10, max=86_400, help="The lease of a sub-flow.")
    ] = 120,
    cost: Annotated[
        float, typer.Option("--cost", metavar="N", min=0, help="The price of a core-hour there; ours is 1.")
    ] = 1.0,
) -> int:
    """Add a peer domain. The administrators of both domains add each other, with each other's key.

    forestay peers add north --url https://north.example --key north.key --tenant physics=guests --sends physics
    """
    from forestay.client.api import peer_calls

    known: dict[str, Any] = {"url": url, "key": _read(key_file), "lease": lease, "cost": cost}
    reply = session.client.send(
        peer_calls.put_peer(peer, known | {"tenants": _pairs(tenant or []), "sends": sends or []})
    )
    if session.out.as_json:
        session.out.document(reply)
    else:
        session.out.data(neutral.line(f"{reply['peer']} at {reply['url']} is a peer"))
    return ExitCode.OK


def remove(session: Session, peer: Annotated[str, PEER]) -> int:
    """Remove a peer domain.

    forestay peers remove north
    """
    from forestay.client.api import peer_calls

    session.client.send(peer_calls.remove_peer(peer))
    session.out.say(f"{neutral.line(peer)} was removed.")
    return ExitCode.OK


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from error


def _pairs(arguments: list[str]) -> dict[str, str]:
    pairs = {}
    for argument in arguments:
        theirs, equals, ours = argument.partition("=")
        if not (theirs and equals and ours):
            raise typer.BadParameter(f"--tenant: write THEIRS=OURS, not {argument!r}")
        pairs[theirs] = ours
    return pairs
