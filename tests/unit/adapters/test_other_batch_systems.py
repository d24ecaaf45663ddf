"""HTCondor, PBS and LSF read from outputs as their manuals show them; HTCondor is held against a real one by the contract of batch systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from forestay.adapters.htcondor.batch import HtcondorBatch
from forestay.adapters.lsf.batch import LsfReader
from forestay.adapters.pbs.batch import PbsReader
from forestay.domain.sites.batch import (
    FORGOTTEN,
    SILENT,
    BatchOutcome,
    BatchState,
    PilotJob,
    SubmitRefusal,
    SubmitRefused,
)
from forestay.ports.commands import CommandResult
from forestay.ports.errors import Permanent, Transient
from forestay.ports.sites.batch import BatchReader


@dataclass
class Recorded:
    """Answers with what was written down, by the command's name; one that is not there does not answer in time."""

    answers: Mapping[str, CommandResult]
    asked: list[tuple[str, ...]] = field(default_factory=list)
    given: list[str] = field(default_factory=list)

    async def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: str = "",
        seconds: float = 30.0,
    ) -> CommandResult:
        self.asked.append(tuple(command))
        self.given.append(stdin)
        if command[0] not in self.answers:
            raise Transient(f"{command[0]} did not finish within {seconds:g} seconds")
        return self.answers[command[0]]


CONDOR_Q = """[
{
  "ClusterId": 4711,
  "JobBatchName": "forestay-run",
  "JobStartDate": 1794767941,
  "JobStatus": 2,
  "NumJobStarts": 1,
  "ProcId": 0,
  "RemoteHost": "slot1_1@wn042.example.org"
}
,
{
  "ClusterId": 4712,
  "EnteredCurrentStatus": 1794767999,
  "HoldReason": "Error from slot1_2@wn043.example.org: Docker job has gone over memory limit of 2048 Mb",
  "JobBatchName": "forestay-held",
  "JobStatus": 5,
  "LastRemoteHost": "slot1_2@wn043.example.org",
  "NumJobStarts": 1,
  "ProcId": 0
}
,
{ "ClusterId": 4713, "JobBatchName": "forestay-going", "JobStatus": 3, "ProcId": 0, "RemoveReason": "via condor_rm (by user pilots)" }
]
"""
CONDOR_HISTORY = """[
{
  "ClusterId": 4600,
  "CompletionDate": 1794760000,
  "ExitBySignal": false,
  "ExitCode": 3,
  "JobBatchName": "forestay-done",
  "JobStartDate": 1794759000,
  "JobStatus": 4,
  "LastRemoteHost": "slot1_1@wn001.example.org",
  "NumJobStarts": 1,
  "ProcId": 0
}
,
{ "ClusterId": 4601, "EnteredCurrentStatus": 1794760500, "JobBatchName": "forestay-removed", "JobStatus": 3, "ProcId": 0,
  "RemoveReason": "The job attribute PeriodicRemove expression evaluated to TRUE" }
,
{ "ClusterId": 4602, "ExitBySignal": true, "ExitSignal": 9, "JobBatchName": "forestay-killed", "JobStatus": 4, "ProcId": 0 }
]
"""
QSTAT = """{
    "timestamp":1794767941,
    "pbs_version":"22.05.11",
    "pbs_server":"pbs",
    "Jobs":{
        "100.pbs":{"Job_Name":"forestay-run","job_state":"R","exec_host":"wn1/0*4","run_count":1,"stime":"Sun Nov 15 18:39:01 2026",
            "comment":"Job run at Sun Nov 15 at 18:39 on (wn1:ncpus=4)"},
        "101.pbs":{"Job_Name":"forestay-wait","job_state":"Q","comment":"Not Running: Insufficient amount of resource: ncpus"},
        "102.pbs":{"Job_Name":"forestay-done","job_state":"F","Exit_status":3,"exec_host":"wn1/0+wn2/0","run_count":1,
            "stime":"Sun Nov 15 18:00:00 2026","mtime":"Sun Nov 15 18:10:00 2026"},
        "103.pbs":{"Job_Name":"forestay-killed","job_state":"F","Exit_status":265,"exec_host":"wn2/0","run_count":1,
            "stime":"Sun Nov 15 18:00:00 2026","mtime":"Sun Nov 15 18:10:00 2026"},
        "104.pbs":{"Job_Name":"forestay-lost","job_state":"F","exec_host":"wn3/0","run_count":1,
            "stime":"Sun Nov 15 18:00:00 2026","mtime":"Sun Nov 15 18:10:00 2026","comment":"Job failed, node wn3 is down"},
        "105.pbs":{"Job_Name":"forestay-deleted","job_state":"F","comment":"job deleted before it ran"}
    }
}
"""
BJOBS = """{
  "COMMAND":"bjobs",
  "JOBS":6,
  "RECORDS":[
    {"JOBID":"200","STAT":"RUN","EXIT_CODE":"","EXIT_REASON":"","EXEC_HOST":"4*hostA","PEND_REASON":"","JOB_NAME":"forestay-run"},
    {"JOBID":"201","STAT":"PEND","EXIT_CODE":"","EXIT_REASON":"","EXEC_HOST":"","PEND_REASON":"Job slot limit reached;","JOB_NAME":"w"},
    {"JOBID":"202","STAT":"DONE","EXIT_CODE":"","EXIT_REASON":"","EXEC_HOST":"hostA","PEND_REASON":"","JOB_NAME":"d"},
    {"JOBID":"203","STAT":"EXIT","EXIT_CODE":"137","EXIT_REASON":"TERM_MEMLIMIT: job killed after reaching LSF memory usage limit",
     "EXEC_HOST":"hostB:hostC","PEND_REASON":"","JOB_NAME":"e"},
    {"JOBID":"204","STAT":"UNKWN","EXIT_CODE":"","EXIT_REASON":"","EXEC_HOST":"hostD","PEND_REASON":"","JOB_NAME":"u"},
    {"JOBID":"205","STAT":"ZOMBI","EXIT_CODE":"","EXIT_REASON":"","EXEC_HOST":"hostD","PEND_REASON":"","JOB_NAME":"z"},
    {"JOBID":"206","ERROR":"Job <206> is not found"}
  ]
}
"""
GOOD: dict[str, tuple[type[HtcondorBatch | PbsReader | LsfReader], dict[str, CommandResult]]] = {
    "htcondor": (HtcondorBatch, {"condor_q": CommandResult(0, CONDOR_Q, ""), "condor_history": CommandResult(0, CONDOR_HISTORY, "")}),
    "pbs": (PbsReader, {"qstat": CommandResult(153, QSTAT, "qstat: Unknown Job Id 999.pbs\n"), "qselect": CommandResult(0, "100.pbs\n", "")}),
    "lsf": (LsfReader, {"bjobs": CommandResult(255, BJOBS, ""), "bhist": CommandResult(255, "", "No matching job found\n")}),
}  # fmt: skip

WORDS: dict[str, dict[str, tuple[BatchState, str, int | None, int | None]]] = {
    "htcondor": {
        "4711.0": (BatchState.RUNNING, "RUNNING", None, None),
        "4712.0": (BatchState.WAITING, "HELD", None, None),
        "4713.0": (BatchState.RUNNING, "REMOVED", None, None),
        "4600.0": (BatchState.ENDED, "COMPLETED", 3, None),
        "4601": (BatchState.ENDED, "REMOVED", None, None),
        "4602.0": (BatchState.ENDED, "COMPLETED", None, 9),
        "9999.0": (BatchState.UNKNOWN, "", None, None),
    },
    "pbs": {
        "100.pbs": (BatchState.RUNNING, "R", None, None),
        "101": (BatchState.WAITING, "Q", None, None),
        "102.pbs": (BatchState.ENDED, "F", 3, None),
        "103.pbs": (BatchState.ENDED, "F", None, 9),
        "104.pbs": (BatchState.LOST, "F", None, None),
        "105.pbs": (BatchState.ENDED, "F", None, None),
        "999.pbs": (BatchState.UNKNOWN, "", None, None),
    },
    "lsf": {
        "200": (BatchState.RUNNING, "RUN", None, None),
        "201": (BatchState.WAITING, "PEND", None, None),
        "202": (BatchState.ENDED, "DONE", 0, None),
        "203": (BatchState.ENDED, "EXIT", None, 9),
        "204": (BatchState.UNKNOWN, "UNKWN", None, None),
        "205": (BatchState.LOST, "ZOMBI", None, None),
        "206": (BatchState.UNKNOWN, "", None, None),
    },
}


def reader(system: str, answers: Mapping[str, CommandResult] | None = None) -> tuple[BatchReader, Recorded]:
    made, good = GOOD[system]
    commands = Recorded(good if answers is None else answers)
    return made(commands), commands


@pytest.mark.parametrize("system", GOOD)
async def test_every_word_is_read_and_no_absence_is_an_end(system: str) -> None:
    batch, commands = reader(system)
    outcomes = await batch.outcome(WORDS[system])
    fields = {
        name: (outcome.state, outcome.word, outcome.exit_code, outcome.signal) for name, outcome in outcomes.items()
    }
    assert fields == WORDS[system]
    assert len(commands.asked) <= 2, "one question for many"


@pytest.mark.parametrize("system", GOOD)
async def test_what_does_not_answer_says_nothing(system: str) -> None:
    batch, _ = reader(system, {})
    assert await batch.outcome(["1", "2"]) == {"1": SILENT, "2": SILENT}
    with pytest.raises(Transient):
        await batch.find(["forestay-run"])


@pytest.mark.parametrize("system", GOOD)
async def test_a_complaint_is_no_answer(system: str) -> None:
    """Each says so in its own words when its server is down."""
    words = {
        "htcondor": CommandResult(1, "", "-- Failed to fetch ads from: <127.0.0.1:9618> : schedd.example.org\n"),
        "pbs": CommandResult(255, "", "Connection refused\nqstat: cannot connect to server pbs (errno=111)\n"),
        "lsf": CommandResult(255, "", "Failed in an LSF library call: LIM is down; try later\n"),
    }[system]
    batch, _ = reader(system, dict.fromkeys(GOOD[system][1], words))
    assert await batch.outcome(["1"]) == {"1": SILENT}
    with pytest.raises(Transient):
        await batch.find(["forestay-run"])


async def test_jobs_of_htcondor_are_found_by_name_in_the_queue_and_the_history() -> None:
    batch, commands = reader("htcondor")
    jobs = await batch.find(["forestay-run", "forestay-done", "forestay-none"])
    assert {name: [job.id for job in jobs] for name, jobs in jobs.items() if name in ("forestay-run", "forestay-done")} == {
        "forestay-run": ["4711.0"],
        "forestay-done": ["4600.0"],
    }  # fmt: skip
    assert 'member(JobBatchName, {"forestay-run","forestay-done","forestay-none"})' in commands.asked[0]
    with pytest.raises(Permanent):
        await batch.find(['x" || TRUE || "'])


async def test_an_empty_queue_of_htcondor_prints_nothing_and_is_an_answer() -> None:
    batch, _ = reader(
        "htcondor", {"condor_q": CommandResult(0, "", ""), "condor_history": CommandResult(0, "[\n]\n", "")}
    )
    assert await batch.find(["a"]) == {}
    assert await batch.outcome(["1.0"]) == {"1.0": FORGOTTEN}


async def test_jobs_of_pbs_are_found_by_name() -> None:
    batch, _ = reader("pbs")
    (job,) = (await batch.find(["forestay-run"]))["forestay-run"]
    assert (job.id, job.outcome.nodes) == ("100.pbs", ("wn1",))


async def test_what_lsf_forgot_is_found_in_its_history_and_its_end_stays_unknown() -> None:
    history = (
        "Summary of time in seconds spent in various states:\n"
        "JOBID   USER    JOB_NAME  PEND    PSUSP   RUN     USUSP   SSUSP   UNKWN   TOTAL\n"
        "150     ada     holdfas*  2       0       60      0       0       0       62\n"
    )
    empty = '{"COMMAND":"bjobs","JOBS":0,"RECORDS":[]}'
    batch, _ = reader(
        "lsf", {"bjobs": CommandResult(255, empty, "Job <x> is not found\n"), "bhist": CommandResult(0, history, "")}
    )
    (job,) = (await batch.find(["forestay-old"]))["forestay-old"]
    assert (job.id, job.outcome) == ("150", FORGOTTEN)


async def test_what_a_hold_or_a_kill_was_for_is_kept() -> None:
    held = (await reader("htcondor")[0].outcome(["4712.0"]))["4712.0"]
    killed = (await reader("lsf")[0].outcome(["203"]))["203"]
    assert "memory limit" in held.reason
    assert (killed.reason.split(":")[0], killed.nodes) == ("TERM_MEMLIMIT", ("hostB", "hostC"))
    assert BatchOutcome.from_plain(killed.as_plain()) == killed


PILOT = PilotJob("forestay-1", ("python3", "p.py", "--name", 'it\'s "x"'), "/spool", memory=(1 << 20) + 1, wall=600)


async def submitted(ran: CommandResult, job: PilotJob = PILOT) -> tuple[str | SubmitRefused, Recorded]:
    commands = Recorded({"condor_submit": ran})
    return await HtcondorBatch(commands).submit(job), commands


async def test_a_pilot_of_htcondor_is_submitted_by_its_own_words_after_the_options_of_the_site() -> None:
    answer, commands = await submitted(CommandResult(0, "12.0 - 12.0\n", ""), replace(PILOT, options=("-name", "ap2")))
    assert answer == "12.0"
    (asked,) = commands.asked
    assert asked[:6] == ("condor_submit", "-terse", "-name", "ap2", "-batch-name", "forestay-1")
    (text,) = commands.given
    assert """'python3' 'p.py' '--name' 'it''s ""x""'"\n""" in text
    assert "request_memory = 2\n" in text, "a byte more than one MiB"


async def test_what_htcondor_would_read_otherwise_is_not_submitted() -> None:
    good = CommandResult(0, "12.0 - 12.0\n", "")
    for change in ({"command": ("sh", "$(HOME)")}, {"command": ("sh", "a\nqueue 9")}, {"queue": "long"}):
        with pytest.raises(Permanent):
            await submitted(good, replace(PILOT, **change))


@pytest.mark.parametrize(
    ("words", "why", "later"),
    [
        ("ERROR: Can't find address of local schedd", SubmitRefusal.SCHEDULER_DOWN, True),
        ("ERROR: I don't know about the 'x' universe.", SubmitRefusal.REFUSED, False),
        ("ERROR: Number of submitted jobs would exceed MAX_JOBS_PER_OWNER", SubmitRefusal.REFUSED, True),
    ],
)
async def test_refusals_of_htcondor_are_told_apart(words: str, why: SubmitRefusal, *, later: bool) -> None:
    answer, _ = await submitted(CommandResult(1, "", words))
    assert isinstance(answer, SubmitRefused)
    assert (answer.why, answer.later) == (why, later)


async def test_a_submission_to_htcondor_that_broke_off_may_have_gone_through() -> None:
    with pytest.raises(Transient):
        await submitted(CommandResult(1, "", "ERROR: Failed to commit job submission into the queue."))
