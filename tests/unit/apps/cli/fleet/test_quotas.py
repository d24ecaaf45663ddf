"""Quotas, teams and shares at the command line."""

from __future__ import annotations

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, job_json

WAITING = "quota of team physics: 40 of 40 running jobs"


def quota(kind: str, name: str, **limits: float | None) -> dict[str, object]:
    known = {"kind": kind, "name": name, "jobs": None, "cpus": None, "gpus": None, "share": None}
    return known | limits | {"used": {"jobs": 38, "cpus": 100, "gpus": 0}}


def test_quotas_are_listed_with_their_use(forestay: Shell, api: FakeApi) -> None:
    api.quotas["quotas"] = [quota("owner", "*", jobs=5), quota("team", "physics", jobs=40, gpus=8, share=2.0)]
    ended = forestay("quotas")
    assert [line.split() for line in ended.out.splitlines()] == [
        ["FOR", "NAME", "JOBS", "CORES", "GPUS", "SHARE"],
        ["owner", "*", "5", "-", "-"],
        ["team", "physics", "38/40", "100/-", "0/8", "2"],
    ]
    assert forestay("quotas", "list", "-o", "name").out == "owner:*\nteam:physics\n"


def test_a_quota_is_set_and_removed(forestay: Shell, api: FakeApi) -> None:
    ended = forestay("quotas", "set", "--team", "physics", "--jobs", "40", "--share", "2")
    assert ended.err == "Team physics: at most 40 running jobs, share 2.\n"
    (asked,) = api.sent("PUT", "/v1/quotas/team/physics")
    assert asked.body == {"jobs": 40, "cpus": None, "gpus": None, "share": 2.0}
    assert (
        forestay("quotas", "set", "--owner", "*", "--cpus", "8").err
        == "Each owner without own limits: at most 8 cores.\n"
    )
    assert forestay("quotas", "remove", "--owner", "*").err == "The quota of owner * is removed.\n"
    assert api.sent("DELETE", "/v1/quotas/owner/%2A")


@pytest.mark.parametrize("words", [("--jobs", "4"), ("--owner", "a", "--team", "b", "--jobs", "4"), ("--owner", "a")])
def test_a_quota_needs_one_subject_and_a_limit(forestay: Shell, api: FakeApi, words: tuple[str, ...]) -> None:
    assert forestay("quotas", "set", *words).code == 2
    assert api.requests == []


def test_teams_have_members(forestay: Shell, api: FakeApi) -> None:
    assert forestay("quotas", "join", "ada", "physics").err == "ada is in team physics.\n"
    (asked,) = api.sent("PUT", "/v1/quotas/members/ada")
    assert asked.body == {"team": "physics"}
    api.quotas["members"] = [{"owner": "ada", "team": "physics"}]
    assert forestay("quotas", "teams").out.split() == ["TEAM", "OWNER", "physics", "ada"]
    assert forestay("quotas", "leave", "ada").err == "ada is in no team.\n"


def test_the_fair_share_has_a_half_life(forestay: Shell, api: FakeApi) -> None:
    assert forestay("quotas", "shares").err == "Owners take turns: no half-life is set.\n"
    ended = forestay("quotas", "fair-share", "7d")
    assert ended.err.startswith("Owners are served by their shares")
    (asked,) = api.sent("PUT", "/v1/quotas/fair-share")
    assert asked.body == {"half_life": 604_800}
    assert forestay("quotas", "fair-share", "off").err == "Owners take turns.\n"
    assert forestay("quotas", "fair-share", "soon").code == 2
    api.quotas |= {"half_life": 60, "shares": [{"owner": "ada", "team": "", "running": 8.0, "recent": 2.25}]}
    assert forestay("quotas", "shares").out.split() == ["OWNER", "TEAM", "CORES", "RECENT", "ada", "-", "8", "2.2"]


def test_a_job_says_for_which_quota_it_waits(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1) | {"waiting": WAITING})
    assert forestay("queue", "-h", "-o", "%r").out == "Quota:team:physics:40/40\n"
    assert WAITING in forestay("describe", "00000001").out
    assert f"It waits: {WAITING}." in forestay("explain", "00000001").out
    api.put(job_json(1) | {"waiting": "quota of owner ada: at most 4 GPUs, and the job needs 8"})
    assert forestay("queue", "-h", "-o", "%r").out == "Quota:owner:ada\n"
