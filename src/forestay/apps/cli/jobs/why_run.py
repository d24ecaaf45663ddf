"""`forestay why-run`: why a job ran although results of earlier runs are reused."""

from __future__ import annotations

from typing import Annotated

from forestay.apps.cli import neutral
from forestay.apps.cli.jobs.describe import JOB
from forestay.apps.cli.session import Session


def why_run(session: Session, job: Annotated[str, JOB]) -> None:
    """Show why a job ran, or whose result was reused.

    forestay why-run 4f1c9d2a
    """
    name = session.job(job)
    answer = session.client.why_run(name)
    if session.out.as_json:
        session.out.document(answer)
        return
    session.out.folded(neutral.line(f"{'Reused' if answer['reused'] else 'Ran'}: {answer['why']}."), 2)
    for field in answer["differs"]:
        session.out.data(neutral.line(f"  differs  {field}"))
