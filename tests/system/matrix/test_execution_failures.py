"""Execution failures are told apart (paper P0, section 5): each is a real one, met by a real pilot and told to a real server."""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.system.matrix.site import PATIENCE, FailureSite, failure_site, until
from tests.unit.client.executor import functions

from forestay.client import Executor, ForestayClient, JobFailedError, run
from forestay.client.api.answers import FINAL
from forestay.client.api.schemas import InputJson, NewJob, SpecificationJson

KIB, MIB = 1 << 10, 1 << 20
SMALL = "mount -t tmpfs -o size=512k tmpfs $"
"""The shell line that makes a folder of a host small."""


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FailureSite]:
    async with failure_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="module")
def sound(site: FailureSite) -> Iterator[ForestayClient]:
    """A client whose jobs run on a host that is in good order."""
    tenant = site.tenant()
    site.host(tenant)
    with site.client(tenant) as client:
        yield client


@dataclass(frozen=True)
class Told:
    """What the exception service says of a failure."""

    failure: str
    stage: str
    cause: str
    retry: str
    error: str = ""
    file: str = ""


def told(client: ForestayClient, job: str) -> Told:
    """The one incident of a job."""
    (incident,) = client.find_incidents({"job": job}).incidents
    context: dict[str, Any] = client.incident(incident["id"])["context"]
    evidence, finding = context["evidence"], context["finding"]
    assert incident["cause"] == finding["cause"]
    more = (str(evidence.get(name, "")) for name in ("error", "file"))
    return Told(context["failure"], evidence["stage"], finding["cause"], finding["retry"], *more)


def spec(command: str | list[str], *inputs: InputJson, **more: Any) -> SpecificationJson:
    words = ["sh", "-c", command] if isinstance(command, str) else command
    return {"name": "failing", "command": words, "inputs": list(inputs), **more}  # type: ignore[typeddict-item]


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def failed(client: ForestayClient, specification: SpecificationJson, job: NewJob | None = None) -> str:
    """Run a job that fails at its first attempt; its id."""
    with pytest.raises(JobFailedError) as failure:
        run(client, specification, job, timeout=PATIENCE)
    assert client.job(failure.value.job)["attempt"] == 1
    return failure.value.job


def closed_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


MISSING = Told("data unavailable", "staging-in", "data-missing", "no", "ENOENT", "in/x")
DATA: dict[str, tuple[Callable[[FailureSite, Path], InputJson], Told]] = {
    "the file does not exist": (lambda _site, folder: {"name": "in/x", "source": str(folder / "nowhere")}, MISSING),
    "the server has no such file": (
        lambda site, _folder: {"name": "in/x", "source": site.web.url("/nowhere")},
        Told("data unavailable", "staging-in", "data-missing", "no", "HTTP 404", "in/x"),
    ),
    "the server does not give it": (
        lambda site, _folder: {"name": "in/x", "source": site.web.url("/secret")},
        Told("data unavailable", "staging-in", "policy", "no", "HTTP 403", "in/x"),
    ),
    "the server is broken": (
        lambda site, _folder: {"name": "in/x", "source": site.web.url("/broken")},
        Told("data unavailable", "staging-in", "transfer", "same", "HTTP 503", "in/x"),
    ),
    "nobody listens": (
        lambda _site, _folder: {"name": "in/x", "source": f"http://127.0.0.1:{closed_port()}/x"},
        Told("data unavailable", "staging-in", "network", "same", "ECONNREFUSED", "in/x"),
    ),
    "it is not what was asked for": (
        lambda site, _folder: {"name": "in/x", "source": site.web.url("/good"), "sha256": "0" * 64},
        Told("data unavailable", "staging-in", "data-corrupt", "elsewhere", "", "in/x"),
    ),
    "it is cut off": (
        lambda site, _folder: {"name": "in/x", "source": site.web.url("/good"), "bytes": 3},
        Told("data unavailable", "staging-in", "data-corrupt", "elsewhere", "", "in/x"),
    ),
}


@pytest.mark.ledger("P0-25")
@pytest.mark.parametrize("run", DATA)
def test_data_is_not_available(site: FailureSite, sound: ForestayClient, tmp_path: Path, run: str) -> None:
    site.web.files["/good"] = b"good"
    site.web.failures["/secret"], site.web.failures["/broken"] = [403], [503] * 3
    callback, expected = DATA[run]
    job = failed(sound, spec("touch ran", callback(site, tmp_path)))
    assert told(sound, job) == expected
    assert "in/x from" in sound.log(job), "the log names the file and its source"


@pytest.mark.ledger("P0-25")
def test_an_output_that_was_changed_after_its_commit_is_no_input(sound: ForestayClient) -> None:
    producer = run(sound, spec("echo right > made", outputs=["made"]), timeout=PATIENCE)
    made = Path(sound.outputs(producer["id"])["manifest"]["path"]).with_name("made")
    made.write_text("wrong\n")
    wanted: InputJson = {"name": "x", "source": f"job:{producer['id']}/made"}
    job = run(sound, spec('test "$(cat x)" = right', wanted), timeout=PATIENCE)["id"]
    assert told(sound, job) == Told("data unavailable", "staging-in", "data-corrupt", "elsewhere", "", "x")


EXECUTING: dict[str, tuple[list[str] | str, dict[str, Any], Told]] = {
    "it crashes": ("kill -SEGV $$", {}, Told("internal job error", "executing", "code", "no")),
    "it raises": (python("1 / 0"), {}, Told("internal job error", "executing", "code", "no")),
    "its program does not exist": (
        ["no-such-program"], {},
        Told("internal job error", "executing", "code", "no", "ENOENT", "program"),
    ),
    "its program cannot be run": (
        ["/etc/passwd"], {},
        Told("internal job error", "executing", "code", "no", "EACCES", "program"),
    ),
    "it does not take its arguments": (
        python("import argparse; p = argparse.ArgumentParser(); p.add_argument('--n', type=int); p.parse_args(['--n', 'many'])"), {},
        Told("bad input", "executing", "bad-input", "no"),
    ),
    "it may have no more memory": (
        f"ulimit -v {256 * KIB}; exec {sys.executable} -c 'bytearray(1 << 30)'", {},
        Told("resource unavailable", "executing", "memory", "changed"),
    ),
    "its time is over": (
        "sleep 600", {"resources": {"wall": 1}},
        Told("resource unavailable", "executing", "time", "changed"),
    ),
    "it writes nothing": (
        "true", {"outputs": ["made"]},
        Told("output staging", "staging-out", "output-missing", "no", "", "made"),
    ),
    "its folder is gone when it has ended": (
        'echo 1 > made; rm -rf "$FORESTAY_OUTPUTS"', {"outputs": ["made"]},
        Told("output staging", "staging-out", "node", "elsewhere", "folder-gone"),
    ),
}  # fmt: skip


@pytest.mark.ledger("P0-25")
@pytest.mark.parametrize("run", EXECUTING)
def test_a_job_fails_by_itself_or_is_not_given_enough(sound: ForestayClient, run: str) -> None:
    command, more, expected = EXECUTING[run]
    assert told(sound, failed(sound, spec(command, **more))) == expected


@pytest.mark.ledger("P0-25")
def test_what_a_function_raised_is_read_as_well(sound: ForestayClient) -> None:
    with Executor(sound) as pool:
        call = pool.submit(functions.add, "one", 2)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            call.result(PATIENCE)
    assert told(sound, call.job_id()) == Told("internal job error", "executing", "code", "no")


@pytest.mark.ledger("P0-25")
def test_a_kill_by_the_kernel_for_memory_and_one_by_somebody_are_two_things(site: FailureSite) -> None:
    group = site.memory_group(192 * MIB)
    if group is None:
        pytest.skip("no control group for memory can be made here")
    tenant = site.tenant()
    site.host(tenant, "narrow", group=group)
    with site.client(tenant) as client:
        hungry = failed(client, spec(python("bytearray(1 << 30)")))
        assert told(client, hungry) == Told("resource unavailable", "executing", "memory", "changed")
        assert ((client.job(hungry)["last"] or {}).get("oom_kills") or 0) >= 1
        shot = failed(client, spec("kill -KILL $$"))
        assert told(client, shot) == Told("internal job error", "executing", "unknown", "same")


HOSTS: dict[str, tuple[str, SpecificationJson, Told]] = {
    "no room for an input": (
        f"{SMALL}WORK",
        spec("true", {"name": "x", "source": "{large}"}),
        Told("resource unavailable", "staging-in", "disk", "elsewhere", "ENOSPC", "x"),
    ),
    "no room while it runs": (
        f"{SMALL}WORK",
        spec("dd if=/dev/zero of=scratch bs=64k count=64"),
        Told("resource unavailable", "executing", "disk", "elsewhere"),
    ),
    "no room for its outputs": (
        f"{SMALL}OUTPUTS",
        spec("dd if=/dev/zero of=made bs=64k count=32 2> /dev/null", outputs=["made"]),
        Told("output staging", "staging-out", "disk", "elsewhere", "ENOSPC"),
    ),
    "outputs cannot be written": (
        f"{SMALL}OUTPUTS",
        spec("echo 1 > made; mount -o remount,ro {outputs}", outputs=["made"]),
        Told("output staging", "staging-out", "disk", "elsewhere", "EROFS"),
    ),
}


@pytest.mark.ledger("P0-25")
@pytest.mark.parametrize("run", HOSTS)
def test_a_disk_is_full_or_cannot_be_written(site: FailureSite, tmp_path: Path, run: str) -> None:
    prepare, specification, expected = HOSTS[run]
    large = tmp_path / "large"
    large.write_bytes(b"\0" * MIB)
    tenant = site.tenant()
    host = site.host(tenant, "small", prepare=prepare)
    job: NewJob = {"parameters": {"large": str(large), "outputs": str(host.outputs)}}
    with site.client(tenant) as client:
        assert told(client, failed(client, specification, job)) == expected
    assert not list(host.outputs.rglob("manifest.json")), "nothing half done is left to be seen"


@pytest.mark.ledger("P0-25")
def test_a_host_whose_scratch_is_lost_starts_nothing(site: FailureSite) -> None:
    tenant = site.tenant()
    host = site.host(tenant, "wiped")
    with site.client(tenant) as client:
        run(client, spec("true"), timeout=PATIENCE)
        host.jobs.rmdir()
        job = failed(client, spec("true"))
        assert told(client, job) == Told("resource unavailable", "staging-in", "node", "elsewhere", "ENOENT", "folder")


@pytest.mark.ledger("P0-25")
def test_what_cannot_be_cleared_away_costs_no_work_and_is_told(site: FailureSite) -> None:
    """The folder is busy: something that the job mounted is still there."""
    tenant = site.tenant()
    host = site.host(tenant, "cluttered", prepare="true")
    with site.client(tenant) as client:
        ended = run(
            client, spec("echo right > made; mkdir busy; mount -t tmpfs tmpfs busy", outputs=["made"]), timeout=PATIENCE
        )
        assert (ended["state"], ended["attempt"]) == ("completed", 1)
        alerts = until(lambda: [alert for alert in client.alerts() if alert["job"] == ended["id"]], "the alert")
        assert [(alert["alert"], "cluttered (EBUSY)" in alert["words"]) for alert in alerts] == [
            ("cleanup-failed", True)
        ]
        assert told(client, ended["id"]) == Told("cleanup", "cleanup", "cleanup", "no", "EBUSY")
        (incident,) = client.find_incidents({"job": ended["id"]}).incidents
        assert incident["state"] == "ignored"
        manifest = Path(client.outputs(ended["id"])["manifest"]["path"])
        assert hashlib.sha256(manifest.read_bytes()).hexdigest() == client.outputs(ended["id"])["manifest"]["sha256"]
        again = run(client, spec("true"), timeout=PATIENCE)
        assert again["attempt"] == 1, "the host takes the next job"
    assert host.started.process.poll() is None


@pytest.mark.ledger("P0-25")
def test_a_host_that_dies_is_no_failure_of_the_job(site: FailureSite, tmp_path: Path) -> None:
    tenant, gate = site.tenant(), tmp_path / "gate"
    doomed = site.host(tenant, "doomed")
    with site.client(tenant) as client:
        (accepted,) = client.submit(
            [{}], spec(f"echo $FORESTAY_ATTEMPT > made; test -e {gate} || exec sleep 600", outputs=["made"])
        )
        until(lambda: client.job(accepted["id"])["state"] == "running", "its start")
        gate.touch()
        doomed.started.kill()
        site.host(tenant, "sound")
        ended = until(lambda: _final(client, accepted["id"]), "its end")
        assert (ended["state"], ended["attempt"], ended["failures"], ended["releases"]) == ("completed", 2, 0, 1)
        assert ended["last"]["host"] == "sound"
        assert client.find_incidents({"job": accepted["id"]}).incidents == []
        events = [line["event"] for line in client.story(accepted["id"])["story"]]
        assert events == ["create", "claim", "release", "claim", "complete"]


@pytest.mark.ledger("P0-25")
def test_a_job_whose_hosts_die_again_and_again_is_held_with_the_cause(site: FailureSite) -> None:
    """It kills its own pilot; after three of them it is no longer handed out."""
    tenant = site.tenant()
    with site.client(tenant) as client:
        # The parent is the guard, and its parent is the pilot.
        (accepted,) = client.submit([{}], spec("kill -9 $(ps -o ppid= -p $PPID); sleep 600"))
        job = accepted["id"]
        for lost in range(1, 4):
            site.host(tenant, f"doomed-{lost}")
            until(lambda lost=lost: client.job(job)["releases"] == lost, f"loss {lost}")  # type: ignore[misc]
        until(lambda: client.find_incidents({"job": job, "state": "held"}).incidents, "the incident", 90)
        (incident,) = client.find_incidents({"job": job}).incidents
        context: dict[str, Any] = client.incident(incident["id"])["context"]
        finding = context["finding"]
        assert (context["failure"], finding["cause"], finding["retry"]) == ("resource unavailable", "node", "elsewhere")
        assert client.job(job)["state"] == "faulted"


@pytest.mark.ledger("P0-25")
def test_a_way_to_the_server_that_is_cut_costs_nothing(site: FailureSite, tmp_path: Path) -> None:
    """The job ends while nobody hears it; its end is kept and told when the way is there again."""
    tenant, begun, gate = site.tenant(), tmp_path / "begun", tmp_path / "gate"
    with site.client(tenant) as client:
        host = site.host(tenant, "remote")
        script = f"touch {begun}; while ! test -e {gate}; do sleep 0.02; done; echo 1 > made"
        (accepted,) = client.submit([{}], spec(script, outputs=["made"]))
        # It is running for the server before the pilot has heard of it.
        until(begun.exists, "its start")
        site.wire.cut()
        gate.touch()
        spool = host.jobs.parent / "spool"
        until(lambda: list(spool.glob("*.json")), "the end in the spool")
        assert client.job(accepted["id"])["state"] in ("running", "available"), "the server heard nothing"
        site.wire.recover()
        ended = until(lambda: _final(client, accepted["id"]), "its end")
        assert (ended["state"], ended["attempt"], ended["failures"]) == ("completed", 1, 0)


def _final(client: ForestayClient, job: str) -> Any:
    found_job = client.job(job)
    return found_job if found_job["state"] in FINAL else None
