"""`forestay submit`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, Trouble, event, job_json


def test_prints_the_id_alone(forestay: Shell, api: FakeApi) -> None:
    ended = forestay("submit", "--", "./align", "a b")
    assert (ended.code, ended.out, ended.err) == (0, "00001000-0000-4000-8000-000000000000\n", "")
    assert api.requests[0].body == {"specification": {"name": "align", "command": ["./align", "a b"]}, "jobs": [{}]}


def test_every_option_has_its_field(forestay: Shell, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", "mine")
    ended = forestay(
        "submit", "--name", "n", "--cpus", "4", "--memory", "2G", "--disk", "512M", "--gpus", "1", "--container", "debian:12", "--wall", "01:30:00",
        "--priority", "-5", "--team", "t", "--label", "a=b", "--label", "c=d=e", "--env", "X=1", "--env", "OWN",
        "--secret", "DB=file:db", "--secret-file", "T=vault:secret/data/app#t", "--output", "*.bam", "--max-attempts", "3", "--retry-wait", "30s", "--when-exhausted", "hold",
        "--expected-runtime", "90m", "--callback", "https://example.org/done", "--hold", "--external-effects",
        "--param", "sample=s1", "--begin", "2026-05-01T12:30:00+02:00", "--key", "k", "--", "run", "{sample}",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    (asked,) = api.requests
    assert asked.headers["idempotency-key"] == "k"
    assert asked.body == {
        "specification": {
            "name": "n",
            "command": ["run", "{sample}"],
            "environment": {"X": "1", "OWN": "mine"},
            "outputs": ["*.bam"],
            "container": "debian:12",
            "secrets": {"DB": "file:db", "T": {"vault": "secret/data/app#t", "as": "file"}},
            "effects": "external",
            "max_attempts": 3,
            "retry_wait": 30,
            "when_exhausted": "hold",
            "resources": {"cpus": 4, "memory": 2 << 30, "disk": 512 << 20, "gpus": 1, "wall": 5400},
        },
        "jobs": [
            {
                "team": "t", "labels": {"a": "b", "c": "d=e"}, "priority": -5, "expected_runtime": 5400,
                "not_before": "2026-05-01T10:30:00.000Z", "callback": "https://example.org/done", "hold": True,
                "parameters": {"sample": "s1"},
            }
        ],
    }  # fmt: skip


def test_options_after_the_command_belong_to_it(forestay: Shell, api: FakeApi) -> None:
    assert forestay("submit", "ls", "--json", "-n", "3").code == 0
    assert api.requests[0].body["specification"]["command"] == ["ls", "--json", "-n", "3"]


def test_an_array(forestay: Shell, api: FakeApi) -> None:
    ended = forestay("submit", "--count", "3", "--", "run", "{index}")
    assert len(ended.out.splitlines()) == 3
    assert api.requests[0].body["jobs"] == [{"index": 0}, {"index": 1}, {"index": 2}]


def test_json_is_the_answer_with_its_key(forestay: Shell) -> None:
    ended = forestay("submit", "--json", "--key", "k", "--", "true")
    assert ended.json == {"key": "k", "jobs": [{"id": "00001000-0000-4000-8000-000000000000", "created": True}]}


def test_a_lost_answer_is_asked_for_again_with_the_same_key(forestay: Shell, api: FakeApi) -> None:
    api.troubles = [Trouble(lose_answer=True), Trouble(status=503), Trouble(status=429)]
    ended = forestay("submit", "--", "true")
    assert (ended.code, len(ended.out.splitlines())) == (0, 1)
    keys = {request.headers["idempotency-key"] for request in api.sent("POST", "/v1/jobs")}
    assert (len(api.requests), len(keys), len(api.jobs)) == (4, 1, 1)
    assert "retrying in" in ended.err
    assert "1 of 1 jobs existed already" in ended.err


def test_when_patience_ends_the_way_to_go_on_is_told(forestay: Shell, api: FakeApi) -> None:
    api.troubles = [Trouble(lose_answer=True), Trouble(status=503, retry_after="60")]
    ended = forestay("submit", "--", "true")
    assert ended.code == 6
    key = api.requests[0].headers["idempotency-key"]
    assert f"--key {key}" in ended.err
    again = forestay("submit", "--key", key, "--", "true")
    assert (again.code, len(api.jobs)) == (0, 1)


def test_a_key_used_for_something_else_is_a_conflict(forestay: Shell) -> None:
    forestay("submit", "--key", "k", "--", "true")
    ended = forestay("submit", "--key", "k", "--", "false")
    assert (ended.code, ended.out) == (5, "")


def test_more_than_fit_in_one_request(forestay: Shell, api: FakeApi, tmp_path: Path) -> None:
    many = tmp_path / "jobs.jsonl"
    many.write_text("".join(f'{{"parameters": {{"n": {n}}}}}\n' for n in range(25_000)))
    ended = forestay("submit", "--file", str(many), "--key", "k", "--priority", "7", "--", "run", "{n}")
    assert ended.code == 0, ended.err
    assert [len(request.body["jobs"]) for request in api.requests] == [10_000, 10_000, 5_000]
    assert [request.headers["idempotency-key"] for request in api.requests] == ["k", "k.1", "k.2"]
    assert api.requests[2].body["jobs"][-1] == {"parameters": {"n": 24_999}, "priority": 7}
    assert len(ended.out.splitlines()) == 25_000
    assert ended.err == ""  # no bar where nobody looks


def test_what_stands_is_told_when_a_later_request_fails(forestay: Shell, api: FakeApi, tmp_path: Path) -> None:
    many = tmp_path / "jobs.jsonl"
    many.write_text("{}\n" * 10_001)
    api.troubles = [Trouble(), Trouble(status=403)]
    ended = forestay("submit", "--file", str(many), "--key", "k", "--", "true")
    assert (ended.code, len(ended.out.splitlines())) == (4, 10_000)
    assert "10,000 of 10,001 jobs were accepted" in ended.err
    assert "--key k" in ended.err


def test_jobs_from_a_json_file(forestay: Shell, api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    whole = {"specification": {"name": "x", "command": ["true"]}, "jobs": [{"name": "one"}, {"team": "own"}]}
    file.write_text(json.dumps(whole))
    assert forestay("submit", "--file", str(file), "--team", "common").code == 0
    assert api.requests[0].body == {
        "specification": whole["specification"],
        "jobs": [{"team": "common", "name": "one"}, {"team": "own"}],
    }


def test_jobs_from_stdin(forestay: Shell, api: FakeApi) -> None:
    ended = forestay("submit", "--file", "-", "--", "true", stdin='{"name": "a"}\n\n{"name": "b"}\n')
    assert (ended.code, [job["name"] for job in api.requests[0].body["jobs"]]) == (0, ["a", "b"])


@pytest.mark.finding("F-D14")
def test_hello_world_is_shown_beside_the_id(forestay: Shell, api: FakeApi) -> None:
    done = job_json(0x1000, state="completed", attempt=1, changed="2026-05-01T11:00:00.000Z")
    api.streams = [[event("job", {"job": done, "transition": {}})]]
    api.logs[done["id"]] = "hello, world\n"
    ended = forestay("submit", "--wait", "--", "echo", "hello, world")
    assert (ended.code, ended.out) == (0, f"{done['id']}\n")
    assert "hello, world" in ended.err.splitlines()


def test_wait_gives_the_code_of_failed_jobs(forestay: Shell, api: FakeApi) -> None:
    failed = job_json(0x1000, state="failed", attempt=1, changed="2026-05-01T11:00:00.000Z")
    api.streams = [[event("job", {"job": failed, "transition": {}})]]
    ended = forestay("submit", "--wait", "--json", "--", "false")
    assert ended.code == 8
    assert ended.json["ended"][0]["state"] == "failed"
    assert "forestay explain" in ended.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "nothing to run"),
        (["--memory", "4000", "--", "x"], "write it with its unit"),
        (["--wall", "90", "--", "x"], "not a duration"),
        (["--label", "nosign", "--", "x"], "name=value"),
        (["--env", "NOT_THERE", "--", "x"], "no such variable"),
        (["--cpus", "2"], "describes a command"),
        (["--count", "2", "--file", "-", "--", "x"], "exclude each other"),
        (["--file", "missing.json"], "cannot be read"),
        (["--file", "-"], "no jobs"),
    ],
)
def test_mistakes_are_usage_errors_and_nothing_is_sent(
    forestay: Shell, api: FakeApi, words: list[str], text: str
) -> None:
    ended = forestay("submit", *words, stdin="")
    assert (ended.code, ended.out) == (2, "")
    assert text in " ".join(ended.err.split())
    assert api.requests == []


@pytest.mark.parametrize(
    ("text", "value"),
    [("{}\nnot json\n", "line 2: not JSON"), ("{}\n[]\n", "line 2: a job is a JSON object")],
)
def test_a_bad_line_is_named(forestay: Shell, text: str, value: str) -> None:
    ended = forestay("submit", "--file", "-", "--", "true", stdin=text)
    assert ended.code == 2
    assert value in " ".join(ended.err.split())


@pytest.mark.finding("F-D17")
def test_without_a_server_only_the_error_is_told(forestay: Shell) -> None:
    """Nothing was sent, so nothing was accepted, and there is nothing to continue."""
    forestay.environment["FORESTAY_SERVER"] = "http://127.0.0.1:9"
    ended = forestay("submit", "--patience", "0", "--", "true")
    assert ended.code == 6
    assert ended.err.startswith("error: ")
    assert "accepted" not in ended.err
    del forestay.environment["FORESTAY_TOKEN"]
    ended = forestay("submit", "--", "true")
    assert ended.err.startswith("error: There is no token")
