"""Inputs are in a job's folder before it starts (paper P0, sections 3B and 3C): real server, real pilot, real HTTP."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.client.executor import functions
from tests.unit.client.executor.file_server import FileServer, file_server
from tests.unit.client.executor.test_executor import PATIENCE, until

from forestay.client import BadRequest, Executor, ForestayClient, JobFailedError, run
from forestay.client.api.answers import FINAL
from forestay.client.api.schemas import InputJson, NewJob, SpecificationJson


@pytest.fixture
def web() -> Iterator[FileServer]:
    with file_server() as serving:
        yield serving


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def spec(
    command: str, *inputs: InputJson, staging: str = "parallel", outputs: list[str] | None = None
) -> SpecificationJson:
    return {
        "name": "staged",
        "command": ["sh", "-c", command],
        "inputs": list(inputs),
        "staging": staging,
        "outputs": outputs or [],
    }


def output(client: ForestayClient, job: str, name: str) -> str:
    manifest = Path(client.outputs(job)["manifest"]["path"])
    return (manifest.parent / name).read_text()


@pytest.mark.ledger("P0-08")
@pytest.mark.parametrize("staging", ["parallel", "sequential"])
def test_a_job_starts_with_all_its_inputs(
    client: ForestayClient, web: FileServer, tmp_path: Path, staging: str
) -> None:
    """From defined inputs and from a producer job, by path, by HTTP, and by manifest."""
    web.files["/remote.txt"] = b"from the web\n"
    (tmp_path / "shared.txt").write_text("from a shared folder\n")
    producer = run(client, spec("mkdir d; echo from a producer > d/made.txt", outputs=["d/*"]), timeout=PATIENCE)
    job = run(
        client,
        spec(
            "cat in/a.txt b.txt c.txt > all.txt",
            {"name": "in/a.txt", "source": str(tmp_path / "shared.txt")},
            {"name": "b.txt", "source": web.url("/remote.txt"), "bytes": 13, "sha256": digest(b"from the web\n")},
            {"name": "c.txt", "source": f"job:{producer['id']}/d/made.txt"},
            staging=staging,
            outputs=["all.txt"],
        ),
        timeout=PATIENCE,
    )
    assert output(client, job["id"], "all.txt") == "from a shared folder\nfrom the web\nfrom a producer\n"


@pytest.mark.ledger("P0-08")
def test_inputs_come_side_by_side_or_one_after_the_other(client: ForestayClient, web: FileServer) -> None:
    inputs: list[InputJson] = [{"name": f"f{n}", "source": web.url(f"/f{n}")} for n in range(3)]
    web.files |= {f"/f{n}": b"x" * n for n in range(3)}
    run(client, spec("test -e f0 -a -e f1 -a -e f2", *inputs, staging="sequential"), timeout=PATIENCE)
    assert web.asked == ["/f0", "/f1", "/f2"]
    assert web.most_at_once == 1
    web.gate = threading.Barrier(3)
    run(client, spec("test -e f0 -a -e f1 -a -e f2", *inputs), timeout=PATIENCE)
    assert web.most_at_once == 3


@pytest.mark.ledger("P0-08")
def test_a_job_that_waits_for_its_inputs_is_seen_to(client: ForestayClient, web: FileServer, tmp_path: Path) -> None:
    web.files["/f"] = b"x"
    web.gate = threading.Barrier(2)
    input_json: InputJson = {"name": "f", "source": web.url("/f")}
    go_on = tmp_path / "go-on"
    (accepted,) = client.submit([{}], spec(f"while ! test -e {go_on}; do sleep 0.05; done", input_json))
    until(lambda: web.asked, "the transfer")
    assert client.job(accepted["id"])["phase"] == "staging-in"
    web.gate.wait(PATIENCE)
    until(lambda: client.job(accepted["id"])["phase"] == "executing", "its start")
    go_on.touch()
    until(lambda: client.job(accepted["id"])["state"] == "completed", "its end")
    events = [line["event"] for line in client.story(accepted["id"])["story"]]
    assert events == ["create", "claim", "begin", "complete"]


def test_parameters_choose_the_inputs_of_each_job(client: ForestayClient, tmp_path: Path) -> None:
    (tmp_path / "s1.txt").write_text("one")
    input_json: InputJson = {"name": "{sample}.in", "source": f"{tmp_path}/{{sample}}.txt"}
    job: NewJob = {"parameters": {"sample": "s1"}}
    run(client, spec("test $(cat s1.in) = one", input_json), job, timeout=PATIENCE)


@pytest.mark.ledger("P0-09")
def test_the_failure_says_which_file_and_why(client: ForestayClient, web: FileServer, tmp_path: Path) -> None:
    web.files["/good"] = b"good"
    web.failures["/broken"] = [503, 503, 503]
    web.failures["/moved"] = [302]
    producer = run(client, spec("echo 1 > made", outputs=["made"]), timeout=PATIENCE)
    runs = [
        ({"name": "x", "source": str(tmp_path / "nowhere")}, "data-missing", "No such file"),
        ({"name": "x", "source": web.url("/nowhere")}, "data-missing", "answered 404"),
        ({"name": "x", "source": f"job:{producer['id']}/other"}, "data-missing", "no output of this name"),
        ({"name": "x", "source": web.url("/good"), "bytes": 5}, "data-corrupt", "4 bytes, 5 were expected"),
        ({"name": "x", "source": web.url("/good"), "sha256": digest(b"bad")}, "data-corrupt", "SHA-256"),
        ({"name": "x", "source": web.url("/broken")}, "transfer", "answered 503"),
        ({"name": "x", "source": web.url("/moved")}, "transfer", "answered 302"),
    ]
    for other_run, reason, words in runs:
        with pytest.raises(JobFailedError) as failed:
            run(client, spec("touch ran; cat x", other_run), timeout=PATIENCE)  # type: ignore[arg-type]
        job = client.job(failed.value.job)
        assert (failed.value.reason, job["state"]) == (reason, "failed"), other_run
        log = client.log(job["id"])
        assert words in log, other_run
        assert "input x from" in log
    assert "/elsewhere" not in web.asked, "no redirect is followed"


@pytest.mark.ledger("P0-09")
def test_a_job_is_not_taken_before_its_producer_has_ended_well(client: ForestayClient) -> None:
    (unfinished,) = client.submit([{"hold": True}], spec("echo 1 > made", outputs=["made"]))
    waiting = spec("cat x", {"name": "x", "source": f"job:{unfinished['id']}/made"})
    with pytest.raises(BadRequest) as refused:
        client.submit([{}, {}], waiting)
    (problem,) = refused.value.problems
    assert problem["at"] == "body.jobs.0.specification.inputs"
    assert "is available and has no committed outputs; submit this job later" in str(problem["detail"])
    with pytest.raises(BadRequest) as refused:
        client.submit([{}], spec("cat x", {"name": "x", "source": "job:no-such-job/made"}))
    assert "there is no job no-such-job" in str(refused.value.problems[0]["detail"])
    client.let_go(unfinished["id"])
    until(lambda: client.job(unfinished["id"])["state"] == "completed", "the producer's end")
    run(client, waiting, timeout=PATIENCE)


def test_a_transfer_that_breaks_off_is_tried_again(client: ForestayClient, web: FileServer) -> None:
    web.files["/f"] = b"whole" * 100_000
    web.failures["/f"] = ["cut", 503]
    input_json: InputJson = {"name": "f", "source": web.url("/f")}
    run(client, spec("test $(wc -c < f) -eq 500000", input_json), timeout=PATIENCE)
    assert web.asked == ["/f"] * 3


def test_a_failure_of_staging_is_tried_again_by_the_jobs_policy(client: ForestayClient, tmp_path: Path) -> None:
    late = tmp_path / "late"
    specification = spec("test -e x", {"name": "x", "source": str(late)})
    specification |= {"max_attempts": 100, "retry_wait": 1}
    (accepted,) = client.submit([{}], specification)
    until(lambda: client.job(accepted["id"])["failures"] > 0, "the first failure")
    late.touch()
    until(lambda: client.job(accepted["id"])["state"] in FINAL, "its end")
    assert client.job(accepted["id"])["state"] == "completed"


def test_sources_that_are_not_allowed_are_refused_at_once(client: ForestayClient) -> None:
    for name, source in (
        ("x", "http://169.254.169.254/latest/meta-data"),
        ("x", "ftp://127.0.0.1/x"),
        ("x", "relative/path"),
        ("x", "http://user:secret@127.0.0.1/"),
        ("../x", "/etc/hosts"),
        ("/x", "/etc/hosts"),
        ("x", "job:some-job/../../x"),
    ):
        with pytest.raises(BadRequest) as refused:
            client.submit([{}], spec("true", {"name": name, "source": source}))
        assert refused.value.problems[0]["at"] == "body.jobs.0.specification.inputs.0", source


def test_functions_have_inputs_too(pool: Executor, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("seven")
    reading = pool.with_options(inputs=[{"name": "here", "source": str(tmp_path / "data")}])
    assert reading.submit(functions.reads, "here").result(PATIENCE) == "seven"
    missing = pool.with_options(inputs=[{"name": "here", "source": str(tmp_path / "nowhere")}])
    with pytest.raises(JobFailedError, match="data-missing"):
        missing.submit(functions.reads, "here").result(PATIENCE)
