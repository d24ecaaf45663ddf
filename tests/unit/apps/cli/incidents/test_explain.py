"""`forestay explain`: from what was seen to what came of it."""

from __future__ import annotations

from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, incident_json, job_json


def test_without_a_job_the_newest_that_waits_for_a_person_is_explained(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(3, state="faulted"))
    api.incidents += [incident_json(2, state="complete"), incident_json(1, job=job_json(3)["id"])]
    ended = forestay("explain")
    assert ended.code == 0, ended.err
    assert "| quux: all seats are taken" in ended.out, "where no line decided, the last ones are shown"
    assert "Trying it again" not in ended.out, "of a failure that nobody knows nobody knows what helps"
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
    assert ended.out.rstrip().endswith("Stands    complete")


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


def test_what_is_neither_a_job_nor_an_incident_is_told_as_no_job(forestay: Shell, api: FakeApi) -> None:
    ended = forestay("explain", "0badcafe")
    assert ended.code == 3
    assert "there is no job with an id that begins with '0badcafe'" in ended.err


def test_nothing_waits(forestay: Shell) -> None:
    ended = forestay("explain")
    assert ended.code == 3
    assert "no failures need attention" in ended.err
