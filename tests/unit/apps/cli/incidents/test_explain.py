"""`forestay explain`: from what was seen to what came of it."""

from __future__ import annotations

import re

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, incident_json, job_json

from forestay.apps.cli.columns import cells


def test_without_a_job_the_newest_that_waits_for_a_person_is_explained(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(3, state="faulted"))
    api.incidents += [incident_json(2, state="complete"), incident_json(1, job=job_json(3)["id"])]
    ended = forestay("explain")
    assert ended.code == 0, ended.err
    assert "| quux: all seats are taken" in ended.out, "where no line decided, the last ones are shown"
    assert (
        "Retry     no. Nobody knows whether another try helps: it waits for a person (1 of 1 attempts used)."
        in ended.out
    )
    assert "This error: seen 14 times here, retry helped 12 of 13." in ended.out
    assert "hold, by default policy: 1 of 1 attempts used" in ended.out
    assert "forestay rules add --from 00000003" in ended.err


def test_a_rule_is_named_briefly_and_told_in_words(forestay: Shell, api: FakeApi) -> None:
    job = job_json(3)["id"]
    api.put(job_json(3))
    returned_incident_json = incident_json(1, job=job, state="complete")
    detail = {
        "words": 'if cause == "memory"; it needs more',
        "path": [{"rule": "root", "verdict": "true", "message": ""}] * 2,
    }
    returned_incident_json["note"] = f"incident {returned_incident_json['id']}"
    returned_incident_json["decisions"] = [
        {"verdict": "playbook", "by": "domain/site#0f1e2d3c-4b5a", "playbook": {"steps": [{"action": "resubmit"}]}, "detail": detail}
    ]  # fmt: skip
    returned_incident_json["steps"] = [
        {"action": "resubmit", "state": "done", "detail": f"incident {returned_incident_json['id']}"}
    ]
    api.incidents.append(returned_incident_json)
    ended = forestay("explain", job)
    assert 'resubmit, by rule 0f1e2d3c of domain/site: if cause == "memory"; it needs more' in ended.out
    assert "Done      resubmit: done\n" in ended.out
    assert ended.out.rstrip().endswith("Now       answered")


def test_an_incident_of_another_engine_has_no_job_and_is_explained_by_itself(forestay: Shell, api: FakeApi) -> None:
    returned_incident_json = incident_json(5, task="align:4711", run="c-7", cause="memory")
    api.incidents.append(returned_incident_json)
    for words in (["explain"], ["explain", returned_incident_json["id"]], ["explain", "00000005"], ["explain", "4711"]):
        ended = forestay(*words)
        assert ended.code == 0, ended.err
        assert ended.out.startswith("align:4711 of alice, abort\n")
        assert "| quux: all seats are taken" in ended.out
        assert "forestay inbox launch 00000005 PLAYBOOK" in ended.err
    assert '"job": null' in forestay("explain", "00000005", "--json").out.replace('":null', '": null')


@pytest.mark.finding("F-A11")
def test_every_id_that_a_user_sees_is_taken(forestay: Shell, api: FakeApi) -> None:
    """Slurm's, also of an array's element and of one part of a heterogeneous job; the inbox's own two; each whole or short."""
    run = "9c1d7e10-0000-4000-8000-000000000001"
    api.incidents += [
        incident_json(7, task="align:4711_3", run=run, cause="memory"),
        incident_json(8, task="sort:12+1", run=run.replace("9c1d", "8c1d"), cause="memory"),
        incident_json(9, task="merge:1_2", run=run.replace("9c1d", "7c1d"), cause="memory"),
    ]
    listed = [line.split() for line in forestay("inbox", "--each").out.splitlines()[1:]]
    ids = {name for line in listed for name in line if name.startswith(("0000000", "9c1d", "8c1d", "7c1d"))}
    assert len(ids) == 6
    names = {"4711_3": "align", "12+1": "sort", "1_2": "merge", run: "align", incident_json(8)["id"]: "sort"}
    names |= {
        "9c1d7e10": "align",
        "00000007": "align",
        "8c1d7e10": "sort",
        "00000008": "sort",
        "00000009": "merge",
        "7c1d7e10": "merge",
    }
    assert ids <= set(names)
    for name, task in names.items():
        ended = forestay("explain", name)
        assert ended.code == 0, ended.err
        assert ended.out.startswith(f"{task}:"), name


@pytest.mark.finding("F-A11")
def test_a_slurm_id_is_not_taken_for_the_beginning_of_another_id(forestay: Shell, api: FakeApi) -> None:
    """Four digits are the beginning of one in 65,536 random ids: of some job, where there are many."""
    job = job_json(3) | {"id": "47110000-0000-4000-8000-000000000003"}
    api.put(job)
    other = incident_json(1, job=job["id"], cause="code") | {"id": "47119999-0000-4000-8000-000000000001"}
    api.incidents += [other, incident_json(5, task="align:4711", run="c-7", cause="memory")]
    assert forestay("explain", "4711").out.startswith("align:4711 of")
    assert job["id"] in forestay("explain", "47110").out
    ended = forestay("rules", "test", "--from", "4711")
    assert api.requests[-1].body == {"incident": incident_json(5)["id"]}, ended.err
    ended = forestay("explain", "4712")
    assert (ended.code, ended.out) == (3, "")
    assert "there is no incident of a batch job 4712" in ended.err


def test_what_is_neither_a_job_nor_an_incident_is_told_as_no_job(forestay: Shell, api: FakeApi) -> None:
    ended = forestay("explain", "0badcafe")
    assert ended.code == 3
    assert "there is no job with an id that begins with '0badcafe'" in ended.err


def test_nothing_waits(forestay: Shell) -> None:
    ended = forestay("explain")
    assert ended.code == 3
    assert "no failures need attention" in ended.err


@pytest.mark.finding("F-D17")
def test_right_after_a_failure_it_is_said_that_its_cause_comes(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(3, state="faulted", attempt=1))
    for words in (["explain"], ["explain", job_json(3)["id"]]):
        ended = forestay(*words)
        assert ended.code == 0, ended.err
        assert "It failed, and its cause is not recorded yet" in ended.out


@pytest.mark.finding("F-D17")
def test_where_nothing_needs_attention_the_newest_failure_is_meant(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(3))
    api.incidents.append(incident_json(1, job=job_json(3)["id"], state="complete"))
    ended = forestay("explain")
    assert "Now       answered" in ended.out
    assert ended.err.startswith("No failure needs attention. The newest one:")
    api.incidents.append(incident_json(2, job=job_json(3)["id"], state="held"))
    ended = forestay("explain")
    assert "Now       waits for a person" in ended.out
    assert ended.err.startswith("The newest failure that needs attention:")


WIDE = "数据" * 60
LONG = "/scratch/" + "a" * 150 + f"/{WIDE} was not found " + "word " * 60


def test_no_line_wraps_at_a_hundred_columns(forestay: Shell, api: FakeApi) -> None:
    """Long names, long errors without a space, and wide characters, in `explain`, `inbox` and `jobs`, also in colour."""
    job = job_json(3, state="faulted", name=f"align-{WIDE}-{'x' * 120}", owner="o" * 60)
    api.put(job)
    finding = {"confidence": 0.9, "cause": "code", "words": LONG, "lines": [LONG, WIDE], "advice": LONG, "retry": "no"}
    incident = incident_json(1, job=job["id"], owner="o" * 60, title=LONG, note=LONG)
    incident["context"] = {"evidence": {"exit_code": 7, "log_tail": LONG, "node": "n" * 130}, "finding": finding}
    incident["advice"] = LONG
    incident["decisions"][0]["detail"] = {"words": LONG}
    api.incidents.append(incident)
    api.inbox.append(
        {
            "group": "", "fingerprint": "1-0a1b2c3d4e5f", "title": LONG, "cause": "data-missing", "owner": "o" * 60, "owners": 1,
            "count": 100_000, "core_hours": 12345.6, "oldest": "2026-05-01T10:00:00.000Z", "incident": incident["id"],
            "job": job["id"], "run": "", "waits_for": "person", "note": LONG, "last_seen": "2026-05-01T11:00:00.000Z",
            "host": "n" * 130, "state": "regressed", "assignee": "a" * 60, "until": None, "since": None, "by": "", "why": LONG, "next": f"forestay explain {job['id'][:8]}",
        }
    )  # fmt: skip
    for colour in ("0", "1"):
        forestay.environment |= {"COLUMNS": "100", "CLICOLOR_FORCE": colour}
        for words in (["explain", job["id"]], ["inbox"], ["inbox", "--each"], ["jobs"]):
            ended = forestay(*words)
            assert ended.code == 0, ended.err
            assert len(ended.out.splitlines()) > 1
            for line in ended.out.splitlines():
                assert cells(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= 100, (words, line)
    del forestay.environment["COLUMNS"]
    assert " ".join(LONG.split()) in forestay("explain", job["id"]).out, (
        "whoever reads it by a program gets whole lines"
    )


def test_the_ranks_of_a_job_of_several_nodes_are_listed(forestay: Shell, api: FakeApi) -> None:
    ranks = [
        "rank 5 on n6: exit code 3",
        *(f"rank {rank} on n{rank + 1}: signal 9, rank 5 failed" for rank in range(5)),
    ]
    incident = incident_json(5, task="align:4711")
    incident["context"]["evidence"] |= {"node": "n6", "ranks": ranks}
    api.incidents.append(incident)
    shown = forestay("explain", "00000005").out
    assert "Seen      exit code 7, on n6\n            rank 5 on n6: exit code 3\n" in shown
    assert "rank 2 on n3: signal 9, rank 5 failed\n            and 2 more ranks\n" in shown


def test_an_array_is_named_by_its_elements_that_failed(forestay: Shell, api: FakeApi) -> None:
    api.incidents += [incident_json(5, task="align:12_3"), incident_json(6, task="sort:120_1")]
    assert forestay("explain", "12").out.startswith("align:12_3 of alice"), "the only one"
    api.incidents.append(incident_json(7, task="align:12_10"))
    ended = forestay("explain", "12")
    assert ended.code != 0
    assert "2 elements of 12 failed: 12_3, 12_10" in ended.err
    assert forestay("explain", "12_10").out.startswith("align:12_10 of alice")


def test_slurms_mark_for_a_kill_for_memory_is_no_signal(forestay: Shell, api: FakeApi) -> None:
    incident = incident_json(5, task="align:12")
    incident["context"]["evidence"] = {"exit_code": 0, "signal": 125}
    api.incidents.append(incident)
    assert "Seen      exit code 0, out of memory (125 in Slurm's record)\n" in forestay("explain", "12").out
