"""`forestay quotas`: limits on what owners and teams use at once, teams, and fair shares."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.apps.cli.amounts import lasting, parse_duration
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

Owner = Annotated[
    str | None, typer.Option("--owner", metavar="NAME", help="The owner; '*': each one without limits of its own.")
]
Team = Annotated[
    str | None, typer.Option("--team", metavar="NAME", help="The team; '*': each one without limits of its own.")
]
OWNER = typer.Argument(metavar="OWNER", help="The owner of jobs.")


@lists
def list_quotas(session: Session) -> int:
    """List quotas with what is used of them.

    forestay quotas list
    """
    from forestay.client.api import host_calls

    session.print_list(
        "quotas", session.client.send(host_calls.quotas())["quotas"],
        [Column("FOR"), Column("NAME", flexible=True), Column("JOBS", right=True), Column("CORES", right=True), Column("GPUS", right=True), Column("SHARE", right=True)],
        lambda quota: [
            str(quota["kind"]), str(quota["name"]), *(_used(quota, amount) for amount in ("jobs", "cpus", "gpus")),
            f"{quota['share']:g}" if quota["share"] else "",
        ],
        key=lambda quota: f"{quota['kind']}:{quota['name']}", empty="There are no quotas.",
    )  # fmt: skip
    return ExitCode.OK


def _used(quota: dict[str, Any], amount: str) -> str:
    """Used and allowed: `38/40`; what everyone is allowed has no use of its own."""
    most = "-" if quota[amount] is None else str(quota[amount])
    return most if quota["name"] == "*" else f"{quota['used'][amount]}/{most}"


def set_quota(
    session: Session,
    owner: Owner = None,
    team: Team = None,
    jobs: Annotated[int | None, typer.Option(min=0, metavar="N", help="The most running jobs.")] = None,
    cpus: Annotated[int | None, typer.Option(min=0, metavar="N", help="The most cores in use.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, metavar="N", help="The most GPUs in use.")] = None,
    share: Annotated[float | None, typer.Option(min=0.001, metavar="X", help="The share beside others (1).")] = None,
) -> int:
    """Set the limits and the share of an owner or a team. What is not stated is not limited. Running jobs go on.

    forestay quotas set --team physics --jobs 40 --gpus 8
    """
    from forestay.client.api import host_calls

    kind, name = _subject(owner, team)
    limits = {"jobs": jobs, "cpus": cpus, "gpus": gpus, "share": share}
    if all(amount is None for amount in limits.values()):
        raise typer.BadParameter("state at least one of --jobs, --cpus, --gpus and --share")
    quota = session.client.send(host_calls.set_quota(kind, name, limits))
    if session.out.as_json:
        session.out.document(quota)
        return ExitCode.OK
    words = {"jobs": "running jobs", "cpus": "cores", "gpus": "GPUs"}
    parts = [f"at most {quota[amount]} {word}" for amount, word in words.items() if quota[amount] is not None]
    parts += [f"share {quota['share']:g}"] if quota["share"] else []
    who = f"Each {kind} without own limits" if name == "*" else f"{kind.capitalize()} {quota['name']}"
    session.out.say(f"{who}: {', '.join(parts)}.")
    return ExitCode.OK


def remove_quota(session: Session, owner: Owner = None, team: Team = None) -> int:
    """Remove the limits and the share of an owner or a team.

    forestay quotas remove --team physics
    """
    from forestay.client.api import host_calls

    kind, name = _subject(owner, team)
    session.client.send(host_calls.remove_quota(kind, name))
    session.out.say(f"The quota of {kind} {name} is removed.")
    return ExitCode.OK


@lists
def list_teams(session: Session) -> int:
    """List who is in which team.

    forestay quotas teams
    """
    from forestay.client.api import host_calls

    members = sorted(
        session.client.send(host_calls.quotas())["members"], key=lambda member: (member["team"], member["owner"])
    )
    session.print_list(
        "members", members, [Column("TEAM"), Column("OWNER", flexible=True)],
        lambda member: [str(member["team"]), str(member["owner"])],
        key=lambda member: str(member["owner"]), empty="There are no teams.",
    )  # fmt: skip
    return ExitCode.OK


def join_team(
    session: Session,
    owner: Annotated[str, OWNER],
    team: Annotated[str, typer.Argument(metavar="TEAM", help="The team that its jobs count in.")],
) -> int:
    """Put an owner into a team. It leaves the one in which it was.

    forestay quotas join ada physics
    """
    from forestay.client.api import host_calls

    session.client.send(host_calls.join_team(owner, team))
    session.out.say(f"{owner} is in team {team}.")
    return ExitCode.OK


def leave_team(session: Session, owner: Annotated[str, OWNER]) -> int:
    """Take an owner out of its team.

    forestay quotas leave ada
    """
    from forestay.client.api import host_calls

    session.client.send(host_calls.leave_team(owner))
    session.out.say(f"{owner} is in no team.")
    return ExitCode.OK


@lists
def list_shares(session: Session) -> int:
    """List what each owner uses and used recently, if shares are on.

    forestay quotas shares
    """
    from forestay.client.api import host_calls

    reply = session.client.send(host_calls.quotas())
    session.print_list(
        "shares", reply["shares"],
        [Column("OWNER", flexible=True), Column("TEAM"), Column("CORES", right=True), Column("RECENT", right=True)],
        lambda use: [str(use["owner"]), str(use["team"]) or "-", f"{use['running']:g}", f"{use['recent']:.1f}"],
        key=lambda use: str(use["owner"]),
        empty="Nothing was used recently." if reply["half_life"] else "Owners take turns: no half-life is set.",
    )  # fmt: skip
    return ExitCode.OK


def fair_share(
    session: Session,
    half_life: Annotated[
        str,
        typer.Argument(metavar="HALF-LIFE", help="The time after which past use counts half, such as 7d; or 'off'."),
    ],
) -> int:
    """Serve owners by shares and past use, or in turn. Teams are compared first, then the owners in a team.

    forestay quotas fair-share 7d
    """
    from forestay.client.api import host_calls

    try:
        seconds = 0 if half_life == "off" else parse_duration(half_life)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="HALF-LIFE") from error
    session.client.send(host_calls.set_fair_share(seconds))
    if seconds:
        session.out.say(f"Owners are served by their shares; past use counts half after {lasting(seconds)}.")
    else:
        session.out.say("Owners take turns.")
    return ExitCode.OK


def _subject(owner: str | None, team: str | None) -> tuple[str, str]:
    if (owner is None) == (team is None):
        raise typer.BadParameter("state either --owner or --team")
    return ("owner", owner) if owner is not None else ("team", team or "")
