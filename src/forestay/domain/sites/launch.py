"""A launch: one pilot that a site agent submits to its batch system, from the plan to the final state there.

A launch is stored before anything is submitted. Its id is in the batch job's name and is never reused, so an agent that finds a planned
launch after a crash can ask the batch system whether that job exists. Nothing is submitted without a plan, and a second try is
stored before it is made.

States only move forward. A late or repeated report changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

NAME = "forestay-"
"""The prefix of batch job names."""
GIVEN_UP = "given up"
"""The end of a launch that was never submitted and is no longer needed."""


class LaunchState(StrEnum):
    """How far a launch has come."""

    PLANNED = "planned"
    """It may be submitted, or may have been: its agent reports when it knows."""
    SUBMITTED = "submitted"
    """The batch system has it, under a known id."""
    RUNNING = "running"
    """The batch system started it, or its pilot registered."""
    ENDED = "ended"
    """The batch system reported its end, or it was certainly never submitted."""


ORDER = tuple(LaunchState)


@dataclass(frozen=True, slots=True)
class LaunchEnd:
    """How a launch ended, in the batch system's own terms."""

    word: str
    """Its state, such as `COMPLETED` or `NODE_FAIL`; `refused` if it rejected the job, `given up` if it was never submitted."""
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    nodes: tuple[str, ...] = ()
    lost: bool = False
    """The batch system gave it up without confirmation from its node: its processes may still live."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A pilot job requested from a batch system. Times are milliseconds since 1970 in UTC, by the server's clock."""

    id: str
    tenant: str
    site: str
    size: str
    planned: int
    state: LaunchState = LaunchState.PLANNED
    changed: int = 0
    tries: int = 1
    """How often it may have been submitted: each try is stored before it is made."""
    tried: int = 0
    """When the last of them was stored."""
    batch_job: str = ""
    pilot: str = ""
    """The pilot that registered; empty if none has."""
    registered: int = 0
    end: LaunchEnd | None = None
    cancel: bool = False
    """Its pilot fell silent: the agent is to cancel the batch job."""
    owner: str = ""
    """Whose jobs alone its pilot may have, as whose Unix user it is submitted; empty: those of all."""

    @property
    def job_name(self) -> str:
        """The batch job's name."""
        return NAME + self.id


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """A site agent's report on a launch."""

    launch: str
    state: LaunchState
    batch_job: str = ""
    tries: int = 1
    """For a planned launch: the try that is about to be made."""
    end: LaunchEnd | None = None


@dataclass(frozen=True, slots=True)
class NotNext:
    """The report is impossible: another agent is making, or has made, this attempt."""

    reason: str


def told(launch: Launch, report: LaunchReport, *, now: int) -> Launch | NotNext:
    """The launch after a report; unchanged if the report contains nothing new."""
    if report.state is LaunchState.PLANNED:
        if launch.state is not LaunchState.PLANNED:
            return NotNext(f"it is {launch.state} already")
        if report.tries != launch.tries + 1:
            return NotNext(f"{launch.tries} tries are recorded")
        return replace(launch, tries=report.tries, tried=now, changed=now)
    if ORDER.index(report.state) <= ORDER.index(launch.state):
        if report.batch_job and not launch.batch_job:
            return replace(launch, batch_job=report.batch_job, changed=now)
        return launch
    end = (report.end or LaunchEnd("unknown")) if report.state is LaunchState.ENDED else None
    return replace(launch, state=report.state, batch_job=launch.batch_job or report.batch_job, end=end, changed=now)


def registered(launch: Launch, pilot: str, *, now: int) -> Launch:
    """The launch after its pilot registered."""
    if launch.pilot == pilot:
        return launch
    state = launch.state if launch.state is LaunchState.ENDED else LaunchState.RUNNING
    return replace(launch, state=state, pilot=pilot, registered=now, changed=now)


def launch_to_plain(launch: Launch) -> dict[str, object]:
    end = launch.end
    own: dict[str, object] = {"owner": launch.owner} if launch.owner else {}
    return own | {
        "site": launch.site,
        "launch": launch.id,
        "size": launch.size,
        "planned": launch.planned,
        "state": launch.state.value,
        "changed": launch.changed,
        "tries": launch.tries,
        "tried": launch.tried,
        "batch_job": launch.batch_job,
        "pilot": launch.pilot,
        "registered": launch.registered,
        "end": None if end is None else end_to_plain(end),
        "cancel": launch.cancel,
    }


def launch_from_plain(tenant: str, body: Mapping[str, object]) -> Launch:
    end = body["end"]
    return Launch(
        id=str(body["launch"]),
        tenant=tenant,
        site=str(body["site"]),
        size=str(body["size"]),
        planned=_number(body["planned"]),
        state=LaunchState(str(body["state"])),
        changed=_number(body["changed"]),
        tries=_number(body["tries"]),
        tried=_number(body["tried"]),
        batch_job=str(body["batch_job"]),
        pilot=str(body["pilot"]),
        registered=_number(body["registered"]),
        end=end_from_plain(end) if isinstance(end, Mapping) else None,
        cancel=bool(body.get("cancel")),
        owner=str(body.get("owner", "")),
    )


def end_to_plain(end: LaunchEnd) -> dict[str, object]:
    return {
        "word": end.word,
        "reason": end.reason,
        "exit_code": end.exit_code,
        "signal": end.signal,
        "nodes": list(end.nodes),
        "lost": end.lost,
    }


def end_from_plain(body: Mapping[str, object]) -> LaunchEnd:
    nodes = body.get("nodes")
    return LaunchEnd(
        word=str(body["word"]),
        reason=str(body.get("reason") or ""),
        exit_code=_maybe(body.get("exit_code")),
        signal=_maybe(body.get("signal")),
        nodes=tuple(str(node) for node in nodes) if isinstance(nodes, list | tuple) else (),
        lost=bool(body.get("lost")),
    )


def _number(value: object) -> int:
    return int(str(value))


def _maybe(value: object) -> int | None:
    return None if value is None else _number(value)
