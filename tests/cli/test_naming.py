"""Jobs named by the beginning of their id."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Shell
from tests.cli.fake_api import FakeApi, job_json

from holdfast.client import naming


def named(beginning: str) -> dict[str, object]:
    return job_json(0) | {"id": beginning + "00000000-0000-4000-8000-000000000000"[len(beginning) :]}


def test_a_beginning_that_fits_one_job(holdfast: Shell, api: FakeApi) -> None:
    api.put(named("abcd1"), named("ffff"))
    assert holdfast("describe", "--json", "ABCD").json["job"] == named("abcd1")


def test_a_whole_id_is_not_searched_for(holdfast: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    assert holdfast("describe", job_json(1)["id"]).code == 0
    assert api.sent("GET", "/v1/jobs") == []


def test_a_beginning_that_fits_several(holdfast: Shell, api: FakeApi) -> None:
    api.put(named("abcd1"), named("abcd2"))
    ended = holdfast("cancel", "abcd")
    assert (ended.code, ended.out) == (2, "")
    assert "fits 2 jobs" in ended.err
    assert all(one.method == "GET" for one in api.requests)


@pytest.mark.parametrize(("name", "code"), [("abc", 2), ("../x", 2), ("abcd", 3)])
def test_no_job(holdfast: Shell, name: str, code: int) -> None:
    ended = holdfast("describe", name)
    assert (ended.code, ended.out) == (code, "")


def test_an_id_that_does_not_exist(holdfast: Shell) -> None:
    assert holdfast("describe", job_json(9)["id"]).code == 3


def test_a_short_beginning_among_many_jobs_proves_nothing(
    holdfast: Shell, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "LOOK_THROUGH", 1000)
    api.put(named("abcdef01"), *(job_json(number) for number in range(1500)))
    short = holdfast("describe", "abcd")
    assert short.code == 2
    assert "at least 8 characters" in short.err
    assert holdfast("describe", "abcdef01").code == 0
    unseen = holdfast("describe", "000005aa")
    assert unseen.code == 3
    assert "newest jobs" in unseen.err


def test_several_names_in_one_pass(holdfast: Shell, api: FakeApi) -> None:
    api.put(named("aaaa"), named("bbbb"), named("cccc"))
    ended = holdfast("hold", "aaaa", "-", "bbbb", given="cccc aaaa\n")
    assert ended.code == 0, ended.err
    assert [line[:4] for line in ended.out.splitlines()] == ["aaaa", "cccc", "bbbb"]
    assert len(api.sent("GET", "/v1/jobs")) == 1
