"""`forestay describe`, `story`, `logs`, `pilots`, `alerts`, `events`, `status`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, claim_json, ending_json, event, incident_json, job_json

JOB = job_json(1)["id"]


def line(event: str, words: str, **changes: Any) -> dict[str, Any]:
    whole = {
        "rev": 1,
        "at": "2026-05-01T10:00:00.000Z",
        "event": event,
        "state": "available",
        "attempt": 0,
        "by": "alice",
        "note": "",
    }
    return whole | {"words": words} | changes


def test_describe(forestay: Shell, api: FakeApi) -> None:
    manifest = {"path": "/out/1", "sha256": "ab", "files": 2, "bytes": 2048}
    api.put(
        job_json(
            1, state="completed", attempt=1, last=ending_json(outcome="ok", exit_code=0), labels={"a": "b"}, parameters={"n": 1},
            winner={"attempt": 1, "manifest": manifest}, callback={"url": "https://x", "tries": 2, "done": False}, expected_runtime=60,
        )
    )  # fmt: skip
    ended = forestay("describe", JOB)
    assert ended.code == 0
    for text in (
        "./align 'a b'",
        "a=b",
        "n=1",
        "/out/1",
        "2, 2K",
        "not called yet (2 tries)",
        "1 CPU, 2G memory, at most 1:00:00",
    ):
        assert text in ended.out
    assert forestay("describe", "--json", JOB).json == {"job": api.jobs[JOB], "specification": api.specification}


def test_describe_tells_charged_attempts_from_those_free_of_charge(forestay: Shell, api: FakeApi) -> None:
    """A free retry does not mean that a pilot was lost."""
    api.put(job_json(1, attempt=4, max_attempts=1, failures=0, releases=4))
    shown = forestay("describe", JOB).out
    assert "4; 0 of at most 1 charged, 4 free of charge (pilot lost, or a free retry)" in shown
    assert "lost their pilot" not in shown
    api.put(job_json(1, attempt=1, max_attempts=3, failures=1))
    assert "1; 1 of at most 3 charged\n" in forestay("describe", JOB).out


def test_describe_what_it_waits_for(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    assert "for a pilot with a free slot" in forestay("describe", JOB).out
    api.put(job_json(1, held=True, holders=["op"]))
    assert "Held by" in forestay("describe", JOB).out
    api.put(job_json(1, state="running", attempt=1, claim=claim_json(), overlap_possible=True))
    assert "by pilot p-1 on node7" in forestay("describe", JOB).out


def test_a_story_with_its_evidence_and_what_to_do(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, state="faulted", attempt=1, last=ending_json()))
    tail = "".join(f"line {number}\n" for number in range(30)) + "\x1b[2Jno space left\n"
    api.stories[JOB] = {
        "story": [line("create", "alice submitted the job."), line("failure", "Attempt 1 ended badly: exit 3.", attempt=1)],
        "evidence": [
            {"kind": "evidence", "ending": ending_json(), "log_tail": tail},
            {"kind": "late-completion", "at": "2026-05-01T11:00:00Z", "ending": ending_json(attempt=7), "why": "a newer claim stands"},
            {"kind": "alert", "at": "2026-05-01T11:00:00Z", "words": "it runs for long"},
        ],
    }  # fmt: skip
    value = forestay("story", JOB).out
    order = [
        "failed after 1 attempt; needs a decision", "alice submitted the job.", "Attempt 1 ended badly: exit 3.",
        "exit code 3 · ran 7.2 s · peak memory 1G of 2G · on node7", "…", "line 29", "\\x1b[2Jno space left",
        "Attempt 7 ended late and was ignored: a newer claim stands.", "Alert: it runs for long.",
        "What you can do", f"forestay logs {JOB}", f"forestay retry {JOB}", "--attempt 1",
    ]  # fmt: skip
    places = [value.index(text) for text in order]
    assert places == sorted(places)
    assert "line 19" not in value
    assert forestay("story", "--json", JOB).json == {"job": api.jobs[JOB], **api.stories[JOB]}


def test_why_a_job_ran_or_whose_result_it_has(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    api.whys[JOB] = {"reused": None, "why": "not the same as in job j", "differs": ["input a\x1b"], "nearest": "j"}
    assert forestay("why-run", JOB).out.splitlines() == [
        "Ran: not the same as in job j.",
        "  differs  input a\\x1b",
    ]
    assert forestay("why-run", "--json", JOB).json == api.whys[JOB]
    api.whys[JOB] = {"reused": "j", "why": "everything is as in job j", "differs": [], "nearest": None}
    assert forestay("why-run", JOB).out == "Reused: everything is as in job j.\n"


def test_a_story_points_to_what_the_evidence_shows(forestay: Shell, api: FakeApi) -> None:
    runs = [
        (ending_json(signal=9, exit_code=None, peak_memory=2 << 30), "request more than 2G"),
        (ending_json(reason="wall-limit", exit_code=None), "more time"),
        (ending_json(exit_code=127), "not found on that host"),
        (ending_json(signal=9, exit_code=None, peak_memory=1), "signal 9"),
    ]
    api.put(job_json(1, state="failed", attempt=1))
    for ending, run in runs:
        evidence = [{"kind": "evidence", "ending": ending}]
        api.stories[JOB] = {"story": [line("failure", "It ended badly.", attempt=1)], "evidence": evidence}
        assert run in forestay("story", JOB).out


def test_what_can_be_done_fits_the_state(forestay: Shell, api: FakeApi) -> None:
    runs = {
        "forestay logs -f": job_json(1, state="running", attempt=1, claim=claim_json()),
        f"forestay release {JOB}\n": job_json(1, held=True, holders=["alice"]),
        "--holder op": job_json(1, held=True, holders=["op"]),
        "forestay pilots": job_json(1),
        "forestay describe": job_json(1, state="completed", attempt=1, winner={"attempt": 1, "manifest": None}),
    }
    for command, job in runs.items():
        api.put(job)
        assert command in forestay("story", JOB).out


def test_logs_as_they_are_when_nobody_looks(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    api.logs[JOB] = "one\n\x1b[31mtwo\x1b[0m\r\nthree"
    assert forestay("logs", JOB).out == api.logs[JOB]
    assert forestay("logs", "--tail", "1", JOB).out == "three"
    assert forestay("logs", "--attempt", "2", "--json", JOB).json == {"job": JOB, "attempt": 2, "log": api.logs[JOB]}
    assert api.sent("GET", f"/v1/jobs/{JOB}/log")[-1].query == {"attempt": ["2"]}


def test_no_log_yet(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, state="running", attempt=1, claim=claim_json()))
    ended = forestay("logs", JOB)
    assert (ended.code, ended.out) == (3, "")
    assert f"forestay logs -f {JOB}" in ended.err


def test_logs_followed_to_the_end(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, state="running", attempt=1, claim=claim_json()))
    end = event("end", {})
    api.streams = [[event("log", {"text": "a\u2028b\n"}), event("ping", {}), event("log", {"text": "c\n"}), end]]
    assert forestay("logs", "-f", JOB).out == "a\u2028b\nc\n"


def test_a_broken_stream_is_opened_again_and_nothing_is_shown_twice(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, state="running", attempt=1, claim=claim_json()))
    api.streams = [[event("log", {"text": "one\ntw"})], [event("log", {"text": "one\ntwo\nthree\n"}), event("end", {})]]
    assert forestay("logs", "-f", JOB).out == "one\ntwo\nthree\n"


def test_following_a_job_that_has_not_started_waits_for_it(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    running = job_json(1, state="running", attempt=1, claim=claim_json(), changed="2026-05-01T10:01:00.000Z")
    api.streams = [[event("job", {"job": running})], [event("log", {"text": "hello\n"}), event("end", {})]]
    ended = forestay("logs", "-f", JOB)
    assert (ended.out, "has not started yet" in ended.err) == ("hello\n", True)


def test_events_until_there_are_enough(forestay: Shell, api: FakeApi) -> None:
    transition = line("claim", "Pilot p-1 claimed it.", state="running")
    bodies = [{"job": job_json(number), "transition": transition} for number in (1, 2)]
    api.streams = [[event("open", {}), event("job", bodies[0], "1:1")], [event("job", bodies[1], "2:1")]]
    ended = forestay("events", "--json", "--count", "2", "--me", "-t", "R", "--label", "a=b")
    assert [json.loads(text) for text in ended.out.splitlines()] == bodies
    first, second = api.sent("GET", "/v1/events")
    assert first.query == {"owner": ["alice"], "state": ["running"], "label": ["a=b"]}
    assert second.headers["last-event-id"] == "1:1"


def test_events_for_a_reader(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    body = {"job": job_json(1, index=2), "transition": line("claim", "Pilot p-1\x07 claimed it.", state="running")}
    api.streams = [[event("job", body)]]
    ended = forestay("events", "-j", JOB[:8], "-c", "1")
    assert ended.out.endswith("00000001 running   align[2]: Pilot p-1\\x07 claimed it.\n")


def test_pilots(forestay: Shell, api: FakeApi) -> None:
    whole = {"host": "node7", "site": "", "slots": 4, "resources": {"cpus": 8, "memory": 1 << 34, "gpus": 0}}
    api.pilots = [whole | {"id": f"p-{state}", "state": state} for state in ("alive", "silent", "gone")]
    assert [row.split()[0] for row in forestay("pilots").out.splitlines()[1:]] == ["p-alive", "p-silent"]
    assert len(forestay("pilots", "--all").out.splitlines()) == 4
    assert forestay("pilots", "--json", "-a").json == {"pilots": api.pilots, "inactive": []}
    api.pilots.clear()
    assert "No pilot is alive" in forestay("pilots").err


def test_what_pilots_do(forestay: Shell, api: FakeApi) -> None:
    whole = {"host": "node7", "site": "", "slots": 4, "resources": {}, "state": "alive"}
    api.pilots = [
        whole | {"id": "p-1", "activity": "idle", "claims": 0},
        whole | {"id": "p-2", "activity": "busy", "claims": 3},
        whole | {"id": "p-3", "activity": "busy", "claims": 1, "drain": "ada: a disk\x07"},
    ]
    api.inactive = [
        {"launch": "l-4", "site": "s", "state": "submitted", "batch_job": "", "planned": "2026-05-01T10:00:00Z"}
    ]
    shown = forestay("pilots")
    rows = [row.split() for row in shown.out.splitlines()[1:]]
    assert [(row[0], row[3], row[4]) for row in rows] == [
        ("p-1", "idle", "0"), ("p-2", "busy", "3"), ("p-3", "draining", "1"), ("l-4", "inactive", "-"),
    ]  # fmt: skip
    assert "p-3 is draining, ordered by ada: a disk\\x07" in shown.err


def test_pilots_are_told_to_drain(forestay: Shell, api: FakeApi) -> None:
    api.pilots = [{"id": "p-01", "state": "alive"}]
    returned_forestay = forestay("pilots", "drain", "p-01", "--reason", "a disk")
    assert (returned_forestay.code, returned_forestay.out) == (0, "p-01\n")
    assert api.requests[-1].body == {"pilots": ["p-01"], "site": "", "host": "", "reason": "a disk"}
    for words in (["drain", "p-01"], ["drain", "--reason", "r"], ["stop"]):
        assert forestay("pilots", *words).code == 2


def test_the_right_of_a_pilot_is_taken_away(forestay: Shell, api: FakeApi) -> None:
    api.pilots = [{"id": "p-01", "state": "alive"}]
    returned_forestay = forestay("pilots", "revoke", "p-01", "--reason", "stolen")
    assert (returned_forestay.code, returned_forestay.out) == (0, "p-01\n")
    assert (api.requests[-1].path, api.requests[-1].body) == ("/v1/pilots/p-01/revoke", {"reason": "stolen"})
    for words in (["revoke", "p-01"], ["revoke", "--reason", "r"], ["revoke", "p-01", "--reason", "r", "--site", "s"]):
        assert forestay("pilots", *words).code == 2


def test_alerts(forestay: Shell, api: FakeApi) -> None:
    api.alerts = [
        {"id": "a", "at": "2026-05-01T10:00:00Z", "job": JOB, "alert": "past-expected-runtime", "words": "too\nlong"}
    ]
    assert "past-expected-runtime 00000001 too\\nlong" in forestay("alerts").out
    assert forestay("alerts", "--json").json == {"alerts": api.alerts}


def test_status(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    text = forestay("status").out
    assert "alice of tenant physics (operator)" in text
    assert "OPEN JOBS" in text
    assert "        1 available" in text
    assert "2 connected by channels, 1 polling for jobs" in text
    assert forestay("status", "--json").json["jobs"] == {"available": 1}
    assert "with a failure" not in text


@pytest.mark.finding("F-D12")
def test_status_tells_the_share_of_all_failures(forestay: Shell, api: FakeApi) -> None:
    api.fates = {"jobs": 1_000, "recovered": 145, "by_hand": 9, "not_well": 0, "open": 846, "core_hours_saved": 1.0}
    shown = forestay("status").out.splitlines()
    assert shown[-4:] == [
        "1,000 jobs with a failure in the last 24 hours:",
        "  145 (14 %) recovered automatically",
        "  9 recovered by a person",
        "  846 not finished",
    ]


@pytest.mark.finding("F-D17")
def test_a_story_names_the_rule_and_its_reason(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, attempt=1))
    incident = incident_json(7, job=JOB, state="complete")
    decided = {"verdict": "playbook", "playbook": {"steps": [{"action": "resubmit"}]}}
    incident["decisions"] = [
        {
            "n": 1,
            "by": "domain/site#3592c0a2-4b5a",
            "detail": {"words": 'if cause == "memory"; more memory helps'},
            **decided,
        }
    ]
    api.incidents.append(incident)
    by, note = f"playbook:{incident['id']}:1:0", f"incident {incident['id']}"
    gone = by.replace("00000007", "00000008")
    api.stories[JOB] = {
        "story": [
            line("retry", f"Retrying ({by}): {note}.", by=by, note=note),
            line("retry", f"Retrying ({gone}): {note}.", by=gone, note=note),
        ],
        "evidence": [],
    }
    story = forestay("story", JOB).out
    assert 'Retrying (rule 3592c0a2 of domain/site): if cause == "memory"; more memory helps.' in story
    assert "Retrying (a playbook)" in story, "an incident that is gone keeps no story from being told"
    assert "playbook:" not in story


def test_a_batch_job_has_no_story_and_its_failure_is_where_explain_looks(forestay: Shell) -> None:
    ended = forestay("story", "4711")
    assert ended.code != 0
    assert "What went wrong with a batch job: forestay explain 4711" in " ".join(ended.err.split())
