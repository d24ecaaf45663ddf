"""What is named by the beginning of its id."""

from __future__ import annotations

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, incident_json, job_json, run_json

from forestay.client.api import naming


def named(beginning: str) -> dict[str, object]:
    return job_json(0) | {"id": beginning + "00000000-0000-4000-8000-000000000000"[len(beginning) :]}


def test_a_beginning_that_fits_one_job(forestay: Shell, api: FakeApi) -> None:
    api.put(named("abcd1"), named("ffff"))
    assert forestay("describe", "--json", "ABCD").json["job"] == named("abcd1")


def test_a_whole_id_is_not_searched_for(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    assert forestay("describe", job_json(1)["id"]).code == 0
    assert api.sent("GET", "/v1/jobs") == []


def test_a_beginning_that_fits_several(forestay: Shell, api: FakeApi) -> None:
    api.put(named("abcd1"), named("abcd2"))
    ended = forestay("cancel", "abcd")
    assert (ended.code, ended.out) == (2, "")
    assert "2 jobs begin with it" in ended.err
    assert all(request.method == "GET" for request in api.requests)


@pytest.mark.parametrize(("name", "code"), [("abc", 2), ("../x", 2), ("abcd", 3)])
def test_no_job(forestay: Shell, name: str, code: int) -> None:
    ended = forestay("describe", name)
    assert (ended.code, ended.out) == (code, "")


def test_an_id_that_does_not_exist(forestay: Shell) -> None:
    assert forestay("describe", job_json(9)["id"]).code == 3


def test_a_short_beginning_among_many_jobs_proves_nothing(
    forestay: Shell, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "LOOK_THROUGH", 1000)
    api.put(named("abcdef01"), *(job_json(number) for number in range(1500)))
    short = forestay("describe", "abcd")
    assert short.code == 2
    assert "at least 8 characters" in short.err
    assert forestay("describe", "abcdef01").code == 0
    unseen = forestay("describe", "000005aa")
    assert unseen.code == 3
    assert "newest jobs" in unseen.err


def test_several_names_in_one_pass(forestay: Shell, api: FakeApi) -> None:
    api.put(named("aaaa"), named("bbbb"), named("cccc"))
    ended = forestay("hold", "aaaa", "-", "bbbb", stdin="cccc aaaa\n")
    assert ended.code == 0, ended.err
    assert [line[:4] for line in ended.out.splitlines()] == ["aaaa", "cccc", "bbbb"]
    assert len(api.sent("GET", "/v1/jobs")) == 1


def test_runs_pilots_and_requests_too(forestay: Shell, api: FakeApi) -> None:
    run = api.runs.put(run_json(0xABCD0001))
    api.pilots = [{"id": "f00dfeed" * 4, "state": "alive"}, {"id": "f00dcafe" * 4, "state": "alive"}]
    assert forestay("runs", "show", "abcd", "--json").json["run"]["id"] == run
    assert forestay("runs", "list", "--version", "ffffff").code == 0
    assert api.requests[-1].query["version"] == ["f" * 64]
    assert forestay("pilots", "revoke", "f00dfe", "--reason", "stolen").out == "f00dfeed" * 4 + "\n"
    ended = forestay("pilots", "drain", "f00d", "--reason", "r")
    assert (ended.code, ended.out) == (2, "")
    assert "2 pilots begin with it" in ended.err


def test_an_incident_by_its_own_id_its_job_its_run_or_its_batch_job(forestay: Shell, api: FakeApi) -> None:
    run = run_json(7)["id"]
    api.put(job_json(3))
    api.incidents += [
        incident_json(2, run=run, task="align:4711"),
        incident_json(1, job=job_json(3)["id"]),
        incident_json(9, job=job_json(3)["id"]),
    ]
    for name, number in {"00000002": 2, "00000003": 1, run: 2, run[:8]: 2, "4711": 2, "newest": 2}.items():
        json = forestay("explain", name, "--json").json
        assert json["incidents"][0 if number == 2 else -1]["id"] == incident_json(number)["id"], name
    api.incidents.append(incident_json(5, task="align:47"))
    assert forestay("explain", "47", "--json").json["incidents"][0]["id"] == incident_json(5)["id"]
    assert forestay("explain", "4712").code == 3
