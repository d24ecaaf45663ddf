"""`forestay inbox` and `forestay approvals`: what needs attention, or an approval."""

from __future__ import annotations

from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, incident_json, job_json

STORM = {
    "group": "cause:node@1", "fingerprint": "1-0a1b2c3d4e5f", "title": "srun: error: Node failure on <id>", "cause": "node", "owner": "", "owners": 3, "count": 4999, "core_hours": 812.5, "oldest": "2026-05-01T10:00:00.000Z",
    "incident": "i", "job": "j", "run": "", "waits_for": "a person, for the group", "note": "1 of 1 tries failed", "next": "forestay safeguards try 'cause:node@1' --reason TEXT",
    "last_seen": "2026-05-01T11:00:00.000Z", "host": "node17", "state": "regressed", "assignee": "", "until": None, "since": None, "by": "", "why": "",
}  # fmt: skip


def test_the_inbox_shows_the_error_its_storm_its_cost_and_the_next_step(forestay: Shell, api: FakeApi) -> None:
    api.inbox.append(dict(STORM))
    ended = forestay("inbox")
    assert ended.code == 0, ended.err
    for words in (
        "4,999",
        "[storm] srun: error: Node failure on <id>",
        "node",
        "3 owners",
        " storm ",
    ):
        assert words in ended.out, words
    assert "forestay safeguards" in ended.err
    assert len(ended.out.splitlines()) == 2, "a head and one group"
    wide = forestay("inbox", "-o", "wide").out
    for words in (
        "812.5",
        "a person, for the group",
        "1 of 1 tries failed",
        "1-0a1b2c3d4e5f",
        str(STORM["next"]),
        "node17",
    ):
        assert words in wide, words


def test_the_inbox_fits_a_hundred_columns_with_the_error_and_the_next_step(forestay: Shell, api: FakeApi) -> None:
    long = {
        "title": "java.lang.IllegalStateException: " + "long words of an error " * 8, "cause": "output-missing", "owner": "a.rather.long.name@example.org",
        "group": "", "waits_for": "a person", "next": "forestay explain 4f1c9d2a", "job": "4f1c9d2a-77", "count": 1_234_567,
        "state": "acknowledged", "assignee": "olga",
    }  # fmt: skip
    without = {**STORM, "group": "", "fingerprint": "", "title": "", "note": "1 of 1 attempts used"}
    api.inbox += [{**STORM, **long}, dict(STORM), without]
    forestay.environment["COLUMNS"] = "100"
    lines = forestay("inbox").out.splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 100
    assert "java.lang.IllegalState" in lines[1]
    assert lines[1].endswith("4f1c9d2a")
    assert "acknowledged" not in lines[1]
    assert " olga " in lines[1], "who has it says that it was seen"
    assert "1 of 1 attempts used" in lines[3], "an incident of an earlier release says why it waits"


def test_each_lists_single_ones_and_an_empty_inbox_says_so(forestay: Shell, api: FakeApi) -> None:
    assert "No failures need attention" in forestay("inbox").err
    api.incidents += [incident_json(1, state="held"), incident_json(2, state="held")]
    assert len(forestay("inbox", "--each").out.splitlines()) == 3


def test_failures_are_counted_by_host_whatever_they_wait_for(forestay: Shell, api: FakeApi) -> None:
    api.incidents += [
        incident_json(1, state="held", host="n17"), incident_json(2, state="complete", host="n17"), incident_json(3, host=""),
    ]  # fmt: skip
    ended = forestay("inbox", "--cause", "memory", "--owner", "ada", "--since", "1d", "--by", "host")
    assert ended.code == 0, ended.err
    assert [line.split() for line in ended.out.splitlines()] == [
        ["FAILURES", "HOST"],
        ["2", "n17"],
        ["1", "-"],
        ["3", "in", "all"],
    ]
    query = api.requests[-1].query
    assert (query["by"], query["cause"], query["owner"]) == (["host"], ["memory"], ["ada"])
    assert query["since"][0].endswith("Z")
    assert "state" not in query


def test_what_needs_approval_waits_and_another_agrees(forestay: Shell, api: FakeApi) -> None:
    job = job_json(3, state="faulted", attempt=1)
    api.put(job)
    api.needs_approval = True
    ended = forestay("force-complete", job["id"], "--attempt", "1", "--reason", "checked", "--yes")
    assert ended.code == 0, ended.err
    assert "needs an approval: forestay approvals approve 3f9a1c7e20b4" in ended.out
    listed = forestay("approvals", "list")
    assert "3f9a1c7e20b4" in listed.out
    assert "as done" in listed.out
    assert listed.out.splitlines()[0].split()[6:8] == ["ON", "OWNER"]
    assert job["id"][:8] in listed.out.splitlines()[1].split()
    assert "alice" in listed.out.splitlines()[1].split()
    agreed = forestay("approvals", "approve", "3f9a1c", "--yes")
    assert agreed.out.strip() == "3f9a1c7e20b4 done: forced_complete"
    assert api.requests[-1].body == {"agree": True, "reason": ""}
    refused = forestay("approvals", "reject", "3f9a1c7e20b4", "--reason", "no")
    assert refused.out.strip() == "3f9a1c7e20b4 refused"


def test_every_form_of_a_list(forestay: Shell, api: FakeApi) -> None:
    api.incidents += [incident_json(1, job=job_json(3)["id"], note="x" * 200), incident_json(2, run="c-7")]
    assert forestay("inbox", "-o", "name").out.split() == [incident["id"] for incident in api.incidents]
    assert forestay("inbox", "-o", "json").json == {"incidents": api.incidents}
    whole = forestay("inbox", "--each", "-o", "wide").out
    assert api.incidents[0]["id"] in whole
    assert "2026-05-01" in whole
    forestay.environment["COLUMNS"] = "80"
    short = forestay("inbox", "--each").out.splitlines()
    assert all(len(line) <= 80 for line in short)
    assert short[1].startswith("00000001 ")
    assert " ago " in short[1]
    assert short[1].endswith("…")
    assert forestay("inbox", "-o", "nonsense").code == 2
