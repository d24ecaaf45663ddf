"""The verbs that change a job."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, Trouble, claim_json, job_json

JOB = job_json(1)["id"]


@pytest.mark.parametrize(
    ("words", "job", "path", "body", "line"),
    [
        (["cancel", "--reason", "r"], {}, "cancel", {"reason": "r"}, "cancelled"),
        (["cancel"], {}, "cancel", {}, "cancelled"),
        (["hold", "-r", "r"], {}, "hold", {"reason": "r"}, "available held"),
        (["release"], {"held": True}, "continue", {}, "available"),
        (["release", "--holder", "op"], {"held": True}, "continue", {"holder": "op"}, "available"),
        (["retry"], {"state": "faulted"}, "retry", {}, "available"),
        (
            ["release", "--lock", "--attempt", "2", "--reason", "node is gone"],
            {"state": "running", "attempt": 2, "claim": claim_json()},
            "release",
            {"expected_attempt": 2, "expected_claim": "c" * 32, "reason": "node is gone"},
            "available",
        ),
        (
            ["force-complete", "--attempt", "2", "--reason", "checked"],
            {"state": "faulted", "attempt": 2, "generation": 1},
            "force-complete",
            {"expected_attempt": 2, "expected_generation": 1, "reason": "checked"},
            "forced_complete",
        ),
        (
            ["force-fail", "--attempt", "0", "--reason", "broken"],
            {},
            "force-fail",
            {"expected_attempt": 0, "expected_generation": 0, "reason": "broken"},
            "failed",
        ),
    ],
)
def test_each_verb(
    forestay: Shell, api: FakeApi, words: list[str], job: dict[str, Any], path: str, body: dict[str, Any], line: str
) -> None:
    api.put(job_json(1, **job))
    ended = forestay(*words, JOB[:8])
    assert (ended.code, ended.out, ended.err) == (0, f"{JOB} {line}\n", "")
    (sent,) = [request for request in api.requests if request.method == "POST"]
    assert (sent.path, sent.body) == (f"/v1/jobs/{JOB}/{path}", body)


def test_several_jobs_and_one_that_refuses(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1), job_json(2, state="cancelled"), job_json(3))
    names = list(api.jobs)
    ended = forestay("cancel", "-", stdin="\n".join(names))
    assert ended.code == 5
    assert ended.out == f"{names[0]} cancelled\n{names[2]} cancelled\n"
    assert f"{names[1]}:\nerror: the job is already cancelled" in ended.err


def test_json_has_what_was_done_and_what_was_not(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1), job_json(2, state="cancelled"))
    ended = forestay("cancel", "--json", *api.jobs)
    assert ended.code == 5
    assert [job["state"] for job in ended.json["jobs"]] == ["cancelled"]
    assert ended.json["errors"] == [
        {"id": job_json(2)["id"], "message": "the job is already cancelled", "exit_code": 5}
    ]


def test_a_lost_answer_is_settled_by_reading_the_job(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    api.troubles = [Trouble(lose_answer=True)]
    ended = forestay("cancel", JOB)
    assert (ended.code, ended.out) == (0, f"{JOB} cancelled\n")
    assert [request.method for request in api.requests] == ["POST", "POST", "GET"]


def test_an_unknown_outcome_is_said_to_be_one(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    api.troubles = [Trouble(status=503, retry_after="60")]
    ended = forestay("cancel", JOB)
    assert ended.code == 6
    assert "may have succeeded" in ended.err


def test_no_conflict_is_settled_when_every_answer_came(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, state="cancelled"))
    assert forestay("cancel", JOB).code == 5


def test_a_job_that_moved_on(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, state="running", attempt=3, claim=claim_json()))
    for words in (["release", "--lock"], ["force-fail"]):
        ended = forestay(*words, "--attempt", "2", "--reason", "r", JOB)
        assert (ended.code, ended.out) == (5, "")
        assert "attempt 3" in ended.err
        assert "forestay describe" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ["release", "--lock", JOB],
        ["release", "--lock", "--attempt", "1", JOB],
        ["release", "--lock", "--reason", "r", JOB],
        ["release", "--attempt", "1", JOB],
        ["force-complete", JOB],
        ["force-complete", "--attempt", "1", JOB],
        ["cancel"],
    ],
)
def test_what_is_missing_is_a_usage_error(forestay: Shell, api: FakeApi, words: list[str]) -> None:
    assert forestay(*words).code == 2
    assert [request for request in api.requests if request.method == "POST"] == []


def test_a_server_that_is_away_ends_the_round(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1), job_json(2))
    api.troubles = [Trouble(status=503, retry_after="60")]
    assert forestay("hold", *api.jobs).code == 6
    assert len(api.requests) == 1


@pytest.mark.finding("F-D17")
@pytest.mark.parametrize("command", ["force-fail", "force-complete"])
def test_all_missing_options_are_named_at_once(forestay: Shell, api: FakeApi, command: str) -> None:
    api.put(job_json(1, state="faulted"))
    ended = forestay(command, job_json(1)["id"])
    assert ended.code == 2
    assert "Missing option '--attempt'. Also missing: '--reason'." in ended.err
    ended = forestay(command, job_json(1)["id"], "--attempt=1")
    assert "Missing option '--reason'" in ended.err
    assert "Also" not in ended.err
