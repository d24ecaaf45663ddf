"""`forestay bpel run` as a user types it: a flow in WS-BPEL 2.0, its jobs in JSDL 1.0, on a real Temporal, a real store and a real pilot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.laptop import PATIENCE, Laptop, new_laptop
from tests.unit.bpel.jobs import POLLING, REGISTERED, definition, job_process

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    laptop = new_laptop(tmp_path_factory.mktemp("bpel"))
    laptop.start()
    yield laptop
    laptop.stop()


def staged(name: str, *, source: str = "", target: str = "") -> str:
    inner = f"<d:Source><d:URI>{source}</d:URI></d:Source>" if source else ""
    inner += f"<d:Target><d:URI>{target}</d:URI></d:Target>" if target else ""
    return f"<d:DataStaging><d:FileName>{name}</d:FileName><d:CreationFlag>overwrite</d:CreationFlag>{inner}</d:DataStaging>"


def out(name: str) -> str:
    return f"<p:Output>{name}</p:Output>"


def run(name: str, job: str, ask: str = "ask") -> str:
    return (
        f'<assign><copy><from>"{job}"</from><to>${ask}.body</to></copy></assign>'
        f'<invoke name="{name}" partnerLink="jobs" operation="run" inputVariable="{ask}" outputVariable="got"/>'
    )


def write(laptop: Laptop, process: str, jobs: dict[str, str]) -> list[str]:
    (laptop.home / "flow.bpel").write_text(process)
    words = []
    for name, text in jobs.items():
        (laptop.home / name).write_text(text)
        words += ["--jsdl", name]
    return words


@pytest.mark.ledger("P0-02", "P0-03")
def test_sequence_parallelism_loop_and_choice(laptop: Laptop, tmp_path: Path) -> None:
    """The four basic patterns in one flow; several branches of the choice are taken."""
    log = tmp_path / "log"
    jobs = {
        f"{name}.jsdl": definition(name, "sh", "-c", f"echo {name}; echo {name} &gt;&gt; {log}")
        for name in ("first", "left", "right", "again", "large", "odd", "never", "last")
    }
    several = "".join(
        f"<if><condition>$in.n {when}</condition><sequence>{run(job, job, 'ask')}</sequence></if>"
        for job, when in (("large", "&gt; 3"), ("odd", "mod 2 = 1"), ("never", "&gt; 100"))
    )
    body = f"""{run("first", "first")}
    <flow><sequence>{run("left", "left", "ask")}</sequence><sequence>{run("right", "right", "ask2")}</sequence></flow>
    <assign><copy><from>0</from><to>$x</to></copy></assign>
    <while><condition>$x &lt; 3</condition><sequence>{run("again", "again")}<assign><copy><from>$x + 1</from><to>$x</to></copy></assign></sequence></while>
    {several}{run("last", "last")}"""
    process = job_process(body, name="patterns").replace(
        '<variable name="in"', '<variable name="x" type="t:int"/><variable name="in"'
    )
    words = write(laptop, process, jobs)
    ended = laptop.json("bpel", "run", "flow.bpel", *words, "--message", "n=5")
    assert ended["run"]["state"] == "completed", ended
    assert ended["run"]["outputs"] == {"start": {"body": "completed"}}
    lines = log.read_text().split()
    assert lines[0] == "first"
    assert sorted(lines[1:3]) == ["left", "right"]
    assert lines[3:] == ["again", "again", "again", "large", "odd", "last"]


@pytest.mark.ledger("P0-02")
def test_files_go_from_job_to_job(laptop: Laptop, tmp_path: Path) -> None:
    """Data staging: a file is brought, made into another, which the next job is given, and carried to its place."""
    (tmp_path / "numbers").write_text("3\n1\n2\n")
    target = tmp_path / "sum"
    jobs = {
        "sort.jsdl": definition(
            "sort", "sort", "-n", "in.txt", streams=out("sorted.txt"), more=staged("in.txt", source=f"file://{tmp_path}/numbers") + staged("sorted.txt", target="")
            .replace("</d:CreationFlag>", "</d:CreationFlag><d:Target/>")),
        "sum.jsdl": definition(
            "sum", "awk", "{ s += $1 } END { print s }", "given.txt", streams=out("sum.txt"),
            more=staged("given.txt", source="forestay-job:sort/sorted") + staged("sum.txt", target=f"file://{target}")),
    }  # fmt: skip
    words = write(laptop, job_process(run("sort", "sort") + run("sum", "sum"), name="files"), jobs)
    ended = laptop.json("bpel", "run", "flow.bpel", *words)
    assert ended["run"]["state"] == "completed", ended
    assert target.read_text() == "6\n"


@pytest.mark.ledger("P0-02")
@pytest.mark.parametrize("body", [POLLING, REGISTERED], ids=["polling", "notification"])
def test_a_job_that_fails_is_recovered_and_the_process_sees_nothing(laptop: Laptop, tmp_path: Path, body: str) -> None:
    """The job is tried again under the same id: the process polls, or is told, as if nothing had been."""
    mark = tmp_path / "mark"
    jobs = {"first.jsdl": definition("first", "sh", "-c", f"[ -e {mark} ] || {{ touch {mark}; exit 9; }}")}
    words = write(laptop, job_process(body, name="recovered"), jobs)
    (laptop.home / "who.yaml").write_text("partners: {jobs: {submit: {kind: submit, max_attempts: 3}}}\n")
    ended = laptop.json("bpel", "run", "flow.bpel", *words, "--mapping", "who.yaml")
    assert ended["run"]["state"] == "completed", ended
    assert ended["run"]["outputs"] == {"start": {"body": "completed"}}
    (job,) = laptop.json("jobs", "--run", ended["run"]["id"])["jobs"]
    assert (job["state"], job["attempt"]) == ("completed", 2), job


@pytest.mark.ledger("P0-21")
def test_an_adapted_process_runs_as_the_original(laptop: Laptop) -> None:
    words = write(laptop, job_process(POLLING, name="adapted"), {"first.jsdl": definition("first", "true")})
    laptop.run("bpel", "adapt", "flow.bpel", "--proxy", "http://127.0.0.1:1/soap/jobs", "--out", "adapted.bpel")
    assert "refused" not in laptop.run("bpel", "check", "adapted.bpel").replace("0 refused", "")
    ended = laptop.json("bpel", "run", "adapted.bpel", *words)
    assert ended["run"]["state"] == "completed", ended
    assert ended["run"]["outputs"] == {"start": {"body": "completed"}}


def test_what_is_refused_is_said_with_its_line(laptop: Laptop) -> None:
    write(laptop, job_process("<extensionActivity/>", name="bad"), {})
    text = laptop.run("bpel", "check", "flow.bpel", code=1)
    assert "flow.bpel:8: extensionActivity: refused" in text


def only_job(laptop: Laptop, flow_run: str, state: str) -> dict[str, Any]:
    """The run's job when it has a state."""
    deadline = time.monotonic() + PATIENCE
    while True:
        jobs = laptop.json("jobs", "--run", flow_run)["jobs"]
        if jobs and jobs[0]["state"] == state:
            job: dict[str, Any] = jobs[0]
            return job
        assert time.monotonic() < deadline, jobs
        time.sleep(0.2)


@pytest.mark.ledger("P0-02")
@pytest.mark.parametrize(("verb", "answer"), [("force-complete", "completed"), ("force-fail", "seen to")])
def test_a_job_is_forced_and_the_process_hears_of_it(laptop: Laptop, verb: str, answer: str) -> None:
    """Force-complete and force-fail: the process goes on from its own invoke, or into its own handler."""
    handler = '<catch faultName="j:jobFailed"><assign><copy><from><literal><j:job><j:state>seen to</j:state></j:job></literal></from><to>$got.body</to></copy></assign></catch>'
    body = f"<scope><faultHandlers>{handler}</faultHandlers><sequence>{run('long', 'long')}</sequence></scope>"
    words = write(laptop, job_process(body, name="forced"), {"long.jsdl": definition("long", "sleep", "600")})
    flow_run = laptop.json("bpel", "run", "flow.bpel", *words, "--detach")["id"]
    job = only_job(laptop, flow_run, "running")
    laptop.run(verb, job["id"], "--attempt", str(job["attempt"]), "--reason", "it is known")
    ended = laptop.json("watch", flow_run)
    assert ended["run"]["state"] == "completed", ended
    assert ended["run"]["outputs"] == {"start": {"body": answer}}


@pytest.mark.ledger("P0-02")
def test_data_that_could_not_be_brought_is_brought_again(laptop: Laptop, tmp_path: Path) -> None:
    """Re-stage: the source is not there at first; the process sees a job that takes a little longer."""
    source, target = tmp_path / "late", tmp_path / "copy"
    more = staged("in", source=f"file://{source}") + staged("out", target=f"file://{target}")
    jobs = {"copy.jsdl": definition("copy", "cat", "in", streams=out("out"), more=more)}
    words = write(laptop, job_process(run("copy", "copy"), name="staged"), jobs)
    (laptop.home / "tries.yaml").write_text("partners: {jobs: {run: {kind: run, max_attempts: 100}}}\n")
    flow_run = laptop.json("bpel", "run", "flow.bpel", *words, "--mapping", "tries.yaml", "--detach")["id"]
    deadline = time.monotonic() + PATIENCE
    while not any(job["attempt"] >= 2 for job in laptop.json("jobs", "--run", flow_run)["jobs"]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    source.write_text("here at last")
    ended = laptop.json("watch", flow_run)
    assert ended["run"]["state"] == "completed", ended
    assert target.read_text() == "here at last"
