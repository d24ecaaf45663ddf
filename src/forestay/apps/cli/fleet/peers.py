"""`forestay peers`: the other domains to which sub-flows may go and from which they come."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session


def peers(
    session: Session,
    action: Annotated[
        str | None,
        typer.Argument(metavar="[list|key|add|remove]", help="List the peers; show this domain's key; add or remove."),
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="[PEER]", help="What this domain calls the peer.")] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="With add: where its server is.")] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="With add: its public key, as its `forestay peers key` says it."),
    ] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option("--tenant", metavar="THEIRS=OURS", help="With add: one of its tenants, and which of ours it is."),
    ] = None,
    sends: Annotated[
        list[str] | None,
        typer.Option("--sends", metavar="OURS", help="With add: a tenant of ours whose sub-flows may go there."),
    ] = None,
    lease: Annotated[
        int, typer.Option("--lease", metavar="SECONDS", min=10, max=86_400, help="With add: the lease (120).")
    ] = 120,
    cost: Annotated[
        float, typer.Option("--cost", metavar="N", min=0, help="With add: a core-hour's price there; ours is 1.")
    ] = 1.0,
) -> int:
    """Show this domain's peers, `add` one or `remove` it. Both domains' administrators add each other, with each other's key.

    forestay peers add north --url https://north.example --key north.key --tenant physics=guests --sends physics
    """
    from forestay.client.api import peer_calls

    if action in (None, "list"):
        return _list(session, session.client.send(peer_calls.peers()))
    if action == "key":
        own = session.client.send(peer_calls.peers())["key"]
        if session.out.as_json:
            session.out.document({"key": own})
        else:
            session.out.data(own)
        return ExitCode.OK
    if action not in ("add", "remove"):
        raise typer.BadParameter(f"{action!r} is none of list, key, add and remove")
    if not name:
        raise typer.BadParameter(f"{action} wants the name of a peer")
    if action == "remove":
        session.client.send(peer_calls.remove_peer(name))
        session.out.say(f"{neutral.line(name)} is no peer any more.")
        return ExitCode.OK
    if not url or key is None:
        raise typer.BadParameter("add wants --url and --key")
    known: dict[str, Any] = {"url": url, "key": _read(key), "lease": lease, "cost": cost}
    told = session.client.send(
        peer_calls.put_peer(name, known | {"tenants": _pairs(tenant or []), "sends": sends or []})
    )
    if session.out.as_json:
        session.out.document(told)
    else:
        session.out.data(neutral.line(f"{told['peer']} at {told['url']} is a peer"))
    return ExitCode.OK


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from error


def _pairs(given: list[str]) -> dict[str, str]:
    pairs = {}
    for one in given:
        theirs, equals, ours = one.partition("=")
        if not (theirs and equals and ours):
            raise typer.BadParameter(f"--tenant wants THEIRS=OURS, not {one!r}")
        pairs[theirs] = ours
    return pairs


def _list(session: Session, told: dict[str, Any]) -> int:
    if session.out.as_json:
        session.out.document(told)
        return ExitCode.OK
    rows = [
        [
            one["peer"],
            one["url"],
            ", ".join(f"{theirs}={ours}" for theirs, ours in sorted(one["tenants"].items())) or "-",
            ", ".join(one["sends"]) or "-",
            f"{one['lease']} s",
            "up" if one["connected"] else "-",
            f"{one['free']}/{one['slots']}",
        ]
        for one in told["peers"]
    ]
    columns = [
        Column("PEER"),
        Column("URL", widest=60),
        Column("TAKES"),
        Column("SENDS"),
        Column("LEASE", right=True),
        Column("LINK"),
        Column("FREE", right=True),
    ]
    if rows:
        session.out.table(columns, rows)
    else:
        session.out.say("No peers. `forestay peers add --help` says how to add one.")
    return ExitCode.OK
