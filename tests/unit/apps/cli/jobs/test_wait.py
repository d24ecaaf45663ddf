"""`forestay wait`: events, asking, timeouts, exit codes, Ctrl-C."""

from __future__ import annotations

import signal
import subprocess

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, Trouble, claim_json, ending_json, event, job_json

JOB = job_json(1)["id"]
LATER = "2026-05-01T11:00:00.000Z"
COMPLETED = job_json(1, state="completed", attempt=1, changed=LATER)
FAILED = job_json(1, state="failed", attempt=1, changed=LATER, last=ending_json())


def test_a_job_that_has_ended_is_not_waited_for(forestay: Shell, api: FakeApi) -> None:
    api.put(COMPLETED)
    ended = forestay("wait", JOB)
    assert (ended.code, ended.out, ended.err) == (0, f"{JOB} completed\n", "")
    assert api.sent("GET", "/v1/events") == []


def test_an_event_ends_the_wait(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    api.streams = [[event("open", {}), event("ping", {}), event("job", {"job": COMPLETED})]]
    ended = forestay("wait", "--json", JOB[:8])
    assert (ended.code, ended.json["jobs"]) == (0, [COMPLETED])
    assert api.sent("GET", "/v1/events")[0].query == {"id": [JOB]}


def test_without_events_the_job_is_asked_for(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    reads = 0

    def end_at_third_look() -> None:
        nonlocal reads
        reads += 1
        if reads == 3:
            api.put(COMPLETED)
            api.jobs[JOB] = COMPLETED

    api.on_read = end_at_third_look
    assert forestay("wait", JOB).code == 0


def test_an_outage_is_waited_out(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    api.streams = [[], [event("job", {"job": COMPLETED})]]
    api.troubles = [Trouble(), Trouble(status=503), *[Trouble(status=503)] * 5]
    assert forestay("wait", "--patience", "0.01", JOB).code == 0


@pytest.mark.parametrize(
    ("job", "words", "code"),
    [
        (FAILED, [], 8),
        (FAILED, ["--propagate-exit"], 3),
        (FAILED | {"last": ending_json(signal=9, exit_code=None)}, ["--propagate-exit"], 137),
        (FAILED | {"last": None}, ["--propagate-exit"], 8),
        (FAILED | {"state": "cancelled"}, [], 8),
        (FAILED, ["--for", "failed"], 0),
        (FAILED, ["--for", "state=COMPLETE"], 8),
        (COMPLETED | {"state": "forced_complete"}, ["--for", "completed"], 0),
        (COMPLETED, ["--for", "running"], 0),
        (COMPLETED | {"attempt": 0, "state": "cancelled"}, ["--for", "running"], 8),
        (job_json(1, state="faulted"), ["--for", "faulted"], 0),
        (COMPLETED, ["--propagate-exit"], 0),
    ],
)
def test_exit_codes(forestay: Shell, api: FakeApi, job: dict[str, object], words: list[str], code: int) -> None:
    api.jobs[JOB] = job
    ended = forestay("wait", *words, JOB)
    assert ended.code == code
    assert ("forestay explain" in ended.err) == (code != 0)


def test_a_timeout(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, state="running", attempt=1, claim=claim_json()))
    ended = forestay("wait", "--timeout", "0.2", JOB)
    assert (ended.code, ended.out) == (7, "")
    assert "the job is running still" in ended.err
    assert f"forestay wait {JOB}" in ended.err


def test_a_failure_that_waits_for_someone_is_told(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, state="faulted", attempt=1, last=ending_json()))
    ended = forestay("wait", "--timeout", "0.2", JOB)
    assert ended.code == 7
    assert f"attempt 1 of {JOB} failed (exit-3)" in ended.err


def test_many_jobs_are_read_with_few_requests(forestay: Shell, api: FakeApi) -> None:
    jobs = [job_json(number, state="completed", attempt=1) for number in range(1, 251)]
    api.put(*jobs)
    ended = forestay("wait", "-", stdin="\n".join(job["id"] for job in jobs))
    assert (ended.code, len(ended.out.splitlines()), len(api.requests)) == (0, 250, 3)


def test_ctrl_c_leaves_the_job_alone_and_says_how_to_come_back(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    process = forestay.start(["wait", JOB], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert api.read.wait(60)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert f"forestay wait {JOB}".encode() in err
    assert b"Traceback" not in err
    assert {request.method for request in api.requests} == {"GET"}


def test_a_state_that_does_not_exist(forestay: Shell) -> None:
    assert forestay("wait", "--for", "asleep", JOB).code == 2
