"""`forestay wait`: waits until jobs have ended. It only observes; interrupting it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.command import seconds
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.jobs.squeue import cause
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job
    from forestay.client.api.waiting import WaitedJobs

JOBS = typer.Argument(metavar="JOB…", help="Ids, or the beginnings of them; - reads ids from stdin.")


def wait(
    session: Session,
    jobs: Annotated[list[str], JOBS],
    state: Annotated[
        str, typer.Option("--for", metavar="STATE", help="`ended`, or a state such as running.")
    ] = "ended",
    timeout: Annotated[
        float | None, typer.Option(parser=seconds, metavar="TIME", help="Exit with code 7 after this time: 10m.")
    ] = None,
    propagate_exit: Annotated[
        bool, typer.Option("--propagate-exit", help="Exit with the exit code of the first job that failed.")
    ] = False,
) -> int:
    """Wait until jobs have ended. Prints each with its state.

    forestay wait --timeout 2h 4f1c9d2a
    """
    states = _states(state)
    session.client_with(_no_longer_than(session.options.patience, timeout))
    waiting = wait_for(session, session.jobs(jobs), states=states, timeout=timeout)
    if session.out.as_json:
        session.out.document({"jobs": [waiting.known[name] for name in waiting.jobs]})
    else:
        for name in waiting.jobs:
            session.out.data(f"{name} {waiting.known[name]['state']}")
    return exit_code(session, waiting, propagate=propagate_exit)


def _states(word: str) -> frozenset[str]:
    from forestay.client.api.answers import FINAL, STATES

    name = word.lower().removeprefix("state=").replace("-", "_")
    if name in {"ended", "final", "end"}:
        return FINAL
    if name == "complete":
        name = "completed"
    if name not in STATES:
        raise typer.BadParameter(f"{word!r} is not a state; there are ended, {', '.join(STATES)}", param_hint="--for")
    return frozenset({name, "forced_complete"} if name == "completed" else {name})


def _no_longer_than(patience: float | None, timeout: float | None) -> float | None:
    if timeout is None:
        return patience
    return min(timeout, 30.0 if patience is None else patience)


def wait_for(
    session: Session,
    jobs: Sequence[str],
    *,
    states: frozenset[str] | None = None,
    timeout: float | None = None,
    attempts: int = 0,
) -> WaitedJobs:
    """Wait, and show the progress on a terminal. Ctrl-C prints how to continue waiting."""
    from forestay.client import TimedOut
    from forestay.client.api.answers import FINAL
    from forestay.client.api.waiting import wait as wait_by_client

    out = session.out
    ids: set[str] = set()
    done = 0
    with out.progress(_doing(jobs), len(jobs)) as step:

        def changed(waiting: WaitedJobs, job: Job) -> None:
            nonlocal done
            done = len(waiting.known) - sum(1 for name in waiting.open if name in waiting.known)
            step.to(done)
            out.detail(f"{job['id']} is {job['state']}")
            if job["state"] == "faulted" and job["id"] not in ids and not waiting.arrived(job):
                ids.add(job["id"])
                why = f" ({neutral.line(cause(job['last']))})" if job["last"] else ""
                out.say(f"attempt {job['attempt']} of {job['id']} failed{why}. See: forestay explain {job['id']}")

        try:
            return wait_by_client(
                session.client, jobs, states=states or FINAL, attempts=attempts, timeout=timeout, changed=changed
            )
        except TimedOut as error:
            raise TimedOut(f"{error}. {_come_back(jobs)}") from error
        except KeyboardInterrupt:
            out.say(f"\nNo longer waiting. {_come_back(jobs)}")
            raise


def _come_back(jobs: Sequence[str]) -> str:
    if len(jobs) == 1:
        return f"The job continues; to wait again: forestay wait {jobs[0]}"
    some = " ".join(jobs[:3]) + (" …" if len(jobs) > 3 else "")
    return f"The jobs continue; to wait again: forestay wait {some}"


def _doing(jobs: Sequence[str]) -> str:
    return f"waiting for {jobs[0]}" if len(jobs) == 1 else f"waiting for {len(jobs):,} jobs"


def exit_code(session: Session, waiting: WaitedJobs, *, propagate: bool = False) -> int:
    """0 if every job reached the awaited state; 8, or the job's own code, if one ended otherwise."""
    bad = [job for job in (waiting.known[name] for name in waiting.jobs) if not waiting.ended_well(job)]
    if not bad:
        return ExitCode.OK
    for job in bad[:10]:
        why = f" ({neutral.line(cause(job['last']))})" if job["last"] and job["state"] == "failed" else ""
        session.out.say(
            f"{job['id']} {neutral.line(job['name'])} is {job['state']}{why}. See: forestay explain {job['id']}"
        )
    if len(bad) > 10:
        session.out.say(f"and {len(bad) - 10:,} more")
    if propagate:
        return own_code(bad[0])
    return ExitCode.JOB_FAILED


def own_code(job: Job) -> int:
    """The exit code of the command itself; 128 plus the signal, as in a shell; 8 if there is none."""
    last = job["last"] or {}
    if last.get("signal"):
        return 128 + int(last["signal"] or 0)
    return int(last.get("exit_code") or 0) or ExitCode.JOB_FAILED
