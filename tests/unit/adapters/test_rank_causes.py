"""The cause of a failed job of several nodes, by the patterns that are shipped: that of the rank that failed first."""

from __future__ import annotations

import pytest

from forestay.adapters.system.patterns import Patterns
from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.evidence.evidence import evidence_of
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, RankEnd, Token
from forestay.domain.jobs.resources import Resources

LOG = """mesh is torn
Connection reset by peer
{launcher}
srun: error: n2: task 1: Exited with exit code 3
srun: error: n1: task 0: {end}

[pilot: rank 0 on n1: ended by signal 9, since rank 1 failed]
Connection reset by peer
[pilot: rank 1 on n2: exit code 3]
mesh is torn
"""
RANKS = (RankEnd(1, "n2", exit_code=3), RankEnd(0, "n1", signal=9, stopped_for="rank 1 failed"))


@pytest.mark.parametrize("end", ["Killed", "Exited with exit code 137", "Terminated"])
@pytest.mark.parametrize("oom", [False, True])
async def test_that_the_other_ranks_were_killed_is_no_cause(end: str, oom: bool) -> None:
    launcher = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
    )
    last = AttemptResult(Token(1, 1), "c", AttemptOutcome.FAILURE, exit_code=3, host="n1", ranks=RANKS)
    document = JobDocument("j", "t", "s", "wide", "ada", 0, 0, Resources(nodes=2), attempt=1, last=last)
    evidence = evidence_of(document, LOG.format(launcher=launcher if oom else "", end=end))
    finding = (await Patterns().classifier(None)).classify(evidence)
    assert (finding.cause is Cause.MEMORY) is oom, finding
    assert evidence.log_tail[-1] == "mesh is torn"
    assert not any("Connection reset" in line for line in evidence.log_tail), "another rank lost its partner"
