"""`forestay queue` and `forestay jobs`."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, claim_json, ending_json, job_json

HEADING = ["JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)"]


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_squeue_columns_of_jobs_that_have_not_ended(forestay: Shell, api: FakeApi) -> None:
    api.put(
        job_json(1),
        job_json(2, state="running", phase="executing", attempt=1, claim=claim_json()),
        job_json(3, state="completed"),
        job_json(4, state="faulted", attempt=1, last=ending_json()),
    )
    ended = forestay("queue")
    assert (ended.code, ended.err) == (0, "")
    heading, running, faulted, waiting = rows(ended.out)
    assert heading == HEADING
    assert running[:5] + running[6:] == ["00000002", "c1m12d0g0", "align", "alice", "R", "1", "node7"]
    assert faulted == ["00000004", "c1m12d0g0", "align", "alice", "SE", "0:07", "1", "(Faulted:exit-3)"]
    assert waiting == ["00000001", "c1m12d0g0", "align", "alice", "PD", "0:00", "1", "(Resources)"]


@pytest.mark.parametrize(
    ("job", "code", "place"),
    [
        (job_json(held=True, holders=["alice"]), "H", "(JobHeldUser)"),
        (job_json(held=True, holders=["op", "alice"]), "H", "(Held:op+alice)"),
        (job_json(not_before="2999-01-01T00:00:00Z"), "PD", "(BeginTime)"),
        (job_json(not_before="2001-01-01T00:00:00Z"), "PD", "(Resources)"),
        (job_json(waiting="no pilot is connected"), "PD", "(NoPilot)"),
        (job_json(waiting="no pilot is large enough: 9 CPUs needed, the nearest has 8 CPUs"), "PD", "(NoPilotLargeEnough)"),
        (job_json(waiting="no pilot satisfies os == 'x'"), "PD", "(NoPilotSatisfies)"),
        (job_json(waiting="quota of team a: 8 of 8 jobs run"), "PD", "(Quota:team:a:8/8)"),
        (job_json(waiting="there is no licence named l"), "PD", "(Licenses)"),
        (job_json(state="running", phase="staging-in", attempt=1, claim=claim_json()), "CF", "node7"),
        (job_json(state="running", phase="staging-out", attempt=1, claim=claim_json()), "CG", "node7"),
        (job_json(state="running", attempt=1, held=True, holders=["alice"]), "H", "(JobHeldUser)"),
        (job_json(state="failed", attempt=1, last=ending_json(reason="wall-limit", exit_code=None)), "TO", "(wall-limit)"),
        (job_json(state="failed", attempt=1, last=ending_json(signal=9, exit_code=None)), "F", "(signal-9)"),
        (job_json(state="completed", attempt=1, last=ending_json(outcome="ok", exit_code=0)), "CD", "node7"),
        (job_json(state="forced_complete"), "CD", ""),
        (job_json(state="cancelled"), "CA", ""),
    ],
)  # fmt: skip
def test_codes_and_reasons(forestay: Shell, api: FakeApi, job: dict[str, Any], code: str, place: str) -> None:
    api.put(job)
    ended = forestay("queue", "-t", "all", "-h", "-o", "%t|%R")
    assert ended.out == f"{code}|{place}\n"


def test_filters_become_those_of_the_interface(forestay: Shell, api: FakeApi) -> None:
    forestay("queue", "-u", "a,b", "-n", "x", "-A", "t", "-p", "c1m1d0g0", "-w", "n1,n2", "-t", "PD")
    (asked,) = api.requests
    assert {name: values for name, values in asked.query.items() if name not in {"sort", "limit"}} == {
        "owner": ["a", "b"], "name": ["x"], "team": ["t"], "resource_class": ["c1m1d0g0"], "host": ["n1", "n2"], "state": ["available"],
    }  # fmt: skip


def test_me_is_who_the_token_names(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, owner="alice"), job_json(2, owner="bob"))
    assert [row[3] for row in rows(forestay("queue", "--me", "-h").out)] == ["alice"]


def test_short_ids_are_as_long_as_they_must_be(forestay: Shell, api: FakeApi) -> None:
    first, other = job_json(1), job_json(2)
    other["id"] = first["id"][:-1] + "1"
    api.put(first, other)
    assert {row[0] for row in rows(forestay("queue", "-h").out)} == {first["id"], other["id"]}
    api.put(other | {"id": "ffffffff-0000-4000-8000-000000000000"})
    del api.jobs[other["id"]]
    assert {row[0] for row in rows(forestay("queue", "-h").out)} == {"00000001", "ffffffff"}
    assert first["id"] in forestay("queue", "--long").out


def test_a_format_of_squeue(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, name="a-long-name", index=4, priority=3, team="t"))
    ended = forestay("queue", "--format", "%.10i|%5j|%T|%K|%Q|%a|%C|%m|%l|%%")
    assert ended.out.splitlines() == [
        "     JOBID|NAME |STATE|INDEX|PRIORITY|ACCOUNT|CPUS|MIN_MEMORY|TIME_LIMIT|%",
        "  00000001|a-lon|PENDING|4|3|t|1|2G|1:00:00|%",
    ]
    wrong = forestay("queue", "--format", "%Z")
    assert (wrong.code, wrong.out) == (2, "")


def test_start_times_of_waiting_jobs(forestay: Shell, api: FakeApi) -> None:
    api.put(
        job_json(1), job_json(2, not_before="2999-01-01T00:00:00Z"), job_json(3, state="running", claim=claim_json())
    )
    heading, first, second = rows(forestay("queue", "--start").out)
    assert heading[5] == "START_TIME"
    assert [first[5], second[5][:4]] == ["N/A", "2999"]


def test_what_is_not_shown_is_told(forestay: Shell, api: FakeApi) -> None:
    api.put(*(job_json(number) for number in range(1, 8)))
    ended = forestay("queue", "--limit", "3", "-h")
    assert len(ended.out.splitlines()) == 3
    assert "3 of 7 jobs are shown" in ended.err
    assert len(forestay("queue", "--all", "-h").out.splitlines()) == 7


def test_json_is_one_document(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1), job_json(2))
    for words in (["queue", "--json"], ["queue", "-o", "json"], ["jobs", "--json"], ["jobs", "--json", "--all"]):
        assert forestay(*words).json["jobs"] == list(api.jobs.values())
    api.jobs.clear()
    assert forestay("queue", "--json").json == {"jobs": []}
    assert forestay("jobs", "--json", "--all").json == {"jobs": []}


def test_names_alone(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    assert forestay("queue", "-o", "name").out == job_json(1)["id"] + "\n"


def test_again_and_again_until_interrupted(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    process = forestay.start(["queue", "-i", "0.01", "--json"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == process.stdout.readline() != b""
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    assert process.wait() == 130
    process.stdout.close()


def test_states_may_be_named_as_on_the_pages(forestay: Shell, api: FakeApi) -> None:
    ended = forestay("jobs", "-t", "queued,failed attempt,forced complete")
    assert ended.code == 0, ended.err
    assert api.requests[-1].query["state"] == ["available", "faulted", "forced_complete"]


def test_a_state_that_does_not_exist(forestay: Shell) -> None:
    ended = forestay("queue", "-t", "SLEEPING")
    assert ended.code == 2
    assert "not a state" in ended.err


def test_search_with_every_filter(forestay: Shell, api: FakeApi) -> None:
    ended = forestay(
        "jobs", "-t", "F,CA", "--state", "running", "-u", "a", "-u", "b", "--team", "t", "--name", "n", "--specification", "5" * 32,
        "--pilot", "a" * 32, "--host", "h", "--label", "k=v", "--resource-class", "c1", "--not-held", "--min-priority", "-3",
        "--max-priority", "4", "--min-expected-runtime", "1m", "--max-expected-runtime", "1h", "--min-retries", "2", "--min-cpus", "1",
        "--max-cpus", "8", "--min-memory", "1G", "--max-memory", "2G", "--min-gpus", "1", "--created-after", "2026-05-01T00:00:00Z",
        "--created-before", "2026-05-02T00:00:00Z", "--changed-after", "2026-05-01T12:00:00Z", "--exit-code", "3",
        "--filter", "max_index=9", "--sort", "-priority", "--limit", "5",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    (asked,) = api.requests
    assert asked.query == {
        "state": ["failed", "cancelled", "running"], "owner": ["a", "b"], "team": ["t"], "name": ["n"], "specification": ["5" * 32],
        "pilot": ["a" * 32], "host": ["h"], "label": ["k=v"], "resource_class": ["c1"], "held": ["false"], "min_priority": ["-3"],
        "max_priority": ["4"], "min_expected_runtime": ["60"], "max_expected_runtime": ["3600"], "min_retries": ["2"],
        "min_cpus": ["1"], "max_cpus": ["8"], "min_memory": [str(1 << 30)], "max_memory": [str(2 << 30)], "min_gpus": ["1"],
        "created_after": ["2026-05-01T00:00:00.000Z"], "created_before": ["2026-05-02T00:00:00.000Z"],
        "changed_after": ["2026-05-01T12:00:00.000Z"], "min_exit_code": ["3"], "max_exit_code": ["3"], "max_index": ["9"],
        "sort": ["-priority"], "limit": ["5"],
    }  # fmt: skip


def test_all_pages_are_fetched(forestay: Shell, api: FakeApi) -> None:
    api.put(*(job_json(number) for number in range(1, 2_501)))
    ended = forestay("jobs", "--all", "--ids")
    assert ended.out.splitlines() == list(api.jobs)
    assert [request.query.get("cursor") for request in api.requests] == [None, ["1000"], ["2000"]]
    first = forestay("jobs", "--limit", "7")
    assert len(first.out.splitlines()) == 8
    assert "there may be more" in first.err


def test_counts(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1), job_json(2), job_json(3, state="failed"))
    assert forestay("jobs", "--by", "state", "--json").json == {"counts": {"available": 2, "failed": 1}}
    assert rows(forestay("jobs", "--by", "state").out) == [
        ["JOBS", "STATE"],
        ["2", "available"],
        ["1", "failed"],
        ["3", "in", "all"],
    ]


def test_jobs_for_a_reader(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, index=3, state="failed", attempt=2, last=ending_json()))
    _, row = rows(forestay("jobs").out)
    assert row[:5] == ["00000001", "align[3]", "alice", "failed", "2/3"]
    assert row[5] == "3"
    assert row[-1] == "node7"
