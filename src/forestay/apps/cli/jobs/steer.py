"""The commands that change a job: cancel, hold, release, retry, force-complete, force-fail.

Each uses the same version-checked write on the server. Several jobs are processed one by one; a refusal does
not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.jobs.wait import JOBS
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job

Reason = Annotated[str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the job's story.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
SHOWN = 10


def cancel(session: Session, jobs: Annotated[list[str], JOBS], reason: Reason = None, yes: Yes = False) -> int:
    """Cancel jobs. Running jobs are stopped; ended jobs stay as they are.

    forestay jobs --me --name align --ids | forestay cancel -
    """
    names = session.jobs(jobs)
    if not _agreed(session, names, "Cancel", yes=yes):
        return ExitCode.FAILED
    return _each(session, names, lambda name: session.client.cancel(name, reason=reason))


def hold(session: Session, jobs: Annotated[list[str], JOBS], reason: Reason = None) -> int:
    """Hold jobs. A running job may finish; its result is kept until it is released.

    forestay hold 4f1c9d2a --reason "the input is being replaced"
    """
    return _each(session, session.jobs(jobs), lambda name: session.client.hold(name, reason=reason))


def release(
    session: Session,
    jobs: Annotated[list[str], JOBS],
    holder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Lift the hold of this holder (operators).")
    ] = None,
    lock: Annotated[
        bool,
        typer.Option("--lock", help="Instead release the claim of a pilot that is known to be dead (operators)."),
    ] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --lock: the attempt that you saw.")
    ] = None,
    reason: Reason = None,
    yes: Yes = False,
) -> int:
    """Release held jobs, or a job claimed by a dead pilot.

    forestay release 4f1c9d2a
    """
    if not lock:
        if attempt is not None:
            raise typer.BadParameter("--attempt goes with --lock")
        return _each(session, session.jobs(jobs), lambda name: session.client.let_go(name, holder=holder))
    if attempt is None or not reason:
        raise typer.BadParameter(
            "--lock needs --attempt and --reason: the attempt that you saw, and why the claim must go"
        )
    names = session.jobs(jobs)
    if len(names) != 1:
        raise typer.BadParameter("--lock takes one job at a time")
    expected, why = attempt, reason
    warning = "\nIf its process still runs, the job may run twice at the same time; only one attempt can be committed."
    if not _agreed(session, names, f"Release the claim of attempt {expected} of", yes=yes, warning=warning):
        return ExitCode.FAILED

    def free(name: str) -> Job:
        claim = _claim(session, name, expected)
        return session.client.release(name, expected_attempt=expected, expected_claim=claim, reason=why)

    return _each(session, names, free)


def retry(session: Session, jobs: Annotated[list[str], JOBS], reason: Reason = None) -> int:
    """Retry failed jobs that wait for a decision (operators).

    forestay retry 4f1c9d2a --reason "the disk was full"
    """
    return _each(session, session.jobs(jobs), lambda name: session.client.retry(name, reason=reason))


Attempt = Annotated[
    int, typer.Option(min=0, metavar="N", help="The attempt that you saw; refused if the job has changed since.")
]
Why = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the job's story.")]


def force_complete(
    session: Session, jobs: Annotated[list[str], JOBS], attempt: Attempt, reason: Why, yes: Yes = False
) -> int:
    """Count jobs as complete (operators). Their outputs are not committed.

    forestay force-complete 4f1c9d2a --attempt 3 --reason "checked by hand"
    """
    return _force(session, jobs, "complete", session.client.force_complete, attempt, reason, yes=yes)


def force_fail(
    session: Session, jobs: Annotated[list[str], JOBS], attempt: Attempt, reason: Why, yes: Yes = False
) -> int:
    """Count jobs as failed (operators).

    forestay force-fail 4f1c9d2a --attempt 3 --reason "the input is broken"
    """
    return _force(session, jobs, "failed", session.client.force_fail, attempt, reason, yes=yes)


def _force(
    session: Session, jobs: list[str], what: str, call: Callable[..., Job], attempt: int, reason: str, *, yes: bool
) -> int:
    names = session.jobs(jobs)
    if not _agreed(session, names, f"Count as {what}", yes=yes):
        return ExitCode.FAILED

    def one(name: str) -> Job:
        generation = session.client.job(name)["generation"]
        return call(name, expected_attempt=attempt, expected_generation=generation, reason=reason)

    return _each(session, names, one)


def _claim(session: Session, name: str, attempt: int) -> str:
    from forestay.client import ConflictError

    job = session.client.job(name)
    if job["attempt"] != attempt:
        raise ConflictError(f"the job is at attempt {job['attempt']}, not {attempt}", status=409)
    if job["claim"] is None:
        raise ConflictError(f"no pilot has a claim on the job; it is {job['state']}", status=409)
    return job["claim"]["id"]


def _agreed(session: Session, names: Sequence[str], what: str, *, yes: bool, warning: str = "") -> bool:
    """Show a person the selected jobs, and ask for confirmation."""
    if yes or not session.out.at_terminal or not names:
        return True
    for name in names[:SHOWN]:
        job = session.client.job(name)
        session.out.say(f"  {name}  {neutral.line(job['name'])} of {neutral.line(job['owner'])}, {job['state']}")
    if len(names) > SHOWN:
        session.out.say(f"  and {len(names) - SHOWN:,} more")
    jobs = "this job" if len(names) == 1 else f"these {len(names):,} jobs"
    if session.sure(f"{what} {jobs}?{warning}", yes=yes):
        return True
    session.out.say("Nothing was changed.")
    return False


def _each(session: Session, names: Sequence[str], steer: Callable[[str], Job]) -> int:
    """Apply the action to every job; the exit code is that of the first refusal."""
    from forestay.client import ClientError, NotAllowed, Unavailable
    from forestay.client.transport.errors import WaitsForApproval

    out = session.out
    done: list[Job] = []
    errors: list[dict[str, Any]] = []
    first = ExitCode.OK
    with out.progress("steering", len(names)) if len(names) > 50 else _no_bar() as step:
        for number, name in enumerate(names, 1):
            try:
                job = steer(name)
            except WaitsForApproval as waits:
                errors.append(
                    {"id": name, "message": str(waits), "exit_code": int(ExitCode.OK), "approval": waits.request}
                )
                if not out.as_json:
                    out.data(f"{name} {waits}")
            except ClientError as error:
                if not out.as_json and len(names) > 1:
                    out.say(f"{name}:")
                code = session.report(error)
                first = first or code
                errors.append({"id": name, "message": str(error), "exit_code": int(code)})
                if isinstance(error, Unavailable) or (isinstance(error, NotAllowed) and error.status == 401):
                    break  # the others would fail as well
            else:
                done.append(job)
                if not out.as_json:
                    out.data(f"{job['id']} {job['state']}" + (" held" if job["held"] else ""))
            if step is not None:
                step.to(number)
    if out.as_json:
        out.document({"jobs": done, "errors": errors})
    return first


def _no_bar() -> Any:
    from contextlib import nullcontext

    return nullcontext()
