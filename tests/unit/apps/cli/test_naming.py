"""Jobs named by the beginning of their id."""

from __future__ import annotations

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, job_json

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
    assert "fits 2 jobs" in ended.err
    assert all(one.method == "GET" for one in api.requests)


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
    ended = forestay("hold", "aaaa", "-", "bbbb", given="cccc aaaa\n")
    assert ended.code == 0, ended.err
    assert [line[:4] for line in ended.out.splitlines()] == ["aaaa", "cccc", "bbbb"]
    assert len(api.sent("GET", "/v1/jobs")) == 1
