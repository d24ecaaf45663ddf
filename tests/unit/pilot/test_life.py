"""The pilot's own life: killed, told to stop, out of time, started where another died."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.pilot.conftest import SOURCE, RunningPilot
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer, until
from tests.unit.pilot.process.test_payload import alive, written_pid

from forestay_pilot.containers.runtimes import ContainerRuntimes
from forestay_pilot.process.payload import Surroundings
from forestay_pilot.process.payload_cgroup import ready_parent

StartPilot = Callable[..., RunningPilot]
StartProcess = Callable[..., "subprocess.Popen[bytes]"]


def family(tmp_path: Path) -> str:
    """A payload with a child, and a grandchild in a session of its own; their process ids go to files."""
    inner = f"echo $$ > {tmp_path}/far; exec /bin/sleep 300"
    return f"env -i setsid /bin/sh -c '{inner}' & sleep 300 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/leader; wait"


def test_a_killed_pilot_takes_its_payload_with_it(
    server: FakeServer, pilot_process: StartProcess, tmp_path: Path
) -> None:
    server.submit("sh", "-c", family(tmp_path))
    process = pilot_process()
    pids = [written_pid(tmp_path / name) for name in ("leader", "child", "far")]
    assert all(alive(pid) for pid in pids)
    process.kill()
    until(lambda: not any(alive(pid) for pid in pids), "the death of all")


def test_a_killed_guard_ends_its_payloads_and_the_pilot_goes_on(
    server: FakeServer, pilot_process: StartProcess, tmp_path: Path
) -> None:
    claim = server.submit("sh", "-c", family(tmp_path))
    process = pilot_process()
    leader = written_pid(tmp_path / "leader")
    child, far = written_pid(tmp_path / "child"), written_pid(tmp_path / "far")
    guard = int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1])
    assert guard != process.pid
    os.kill(guard, signal.SIGKILL)
    end = server.end_of(claim)
    assert (end["outcome"], end["reason"], end["signal"]) == ("failure", "signal", signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in (leader, child, far)), "the death of the payload")
    assert server.end_of(server.submit("true"))["outcome"] == "ok"


@pytest.mark.finding("F-B8")
def test_a_pilot_that_cannot_limit_memory_says_so(server: FakeServer, pilot_process: StartProcess) -> None:
    """It runs in the group of the tests, which no pilot may divide."""
    if ready_parent():
        pytest.skip("this process runs in a control group that was delegated to it")
    server.submit("true")
    process = pilot_process()
    until(lambda: server.seen.completions)
    process.kill()
    assert process.stderr is not None
    assert b"memory limits are not enforced" in process.stderr.read()


def test_sigterm_drains(server: FakeServer, pilot_process: StartProcess, tmp_path: Path) -> None:
    running = server.submit("sh", "-c", f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    waiting = server.submit("true")
    process = pilot_process("--batch", "2")
    until((tmp_path / "begun").exists)
    process.send_signal(signal.SIGTERM)
    assert server.end_of(waiting)["reason"] == "not-started"
    requests = len(server.seen.claim_requests)
    (tmp_path / "go").touch()
    assert server.end_of(running)["outcome"] == "ok"
    assert process.wait(10) == 0
    assert server.seen.goodbyes == 1
    assert len(server.seen.claim_requests) == requests
    assert not list((tmp_path / "work").iterdir())
    assert process.stderr is not None
    talk = process.stderr.read().decode()
    assert "draining" in talk
    assert ENROL_TOKEN not in talk
    assert "pilot-token-" not in talk


def test_a_second_signal_stops_payloads(server: FakeServer, pilot_process: StartProcess, tmp_path: Path) -> None:
    claim = server.submit("sh", "-c", f"touch {tmp_path}/begun; exec sleep 300")
    process = pilot_process()
    until((tmp_path / "begun").exists)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert any(b"draining" in line for line in iter(process.stderr.readline, b""))
    process.send_signal(signal.SIGTERM)  # sent any sooner, Linux might make one of the two
    end = server.end_of(claim)
    assert (end["outcome"], end["reason"]) == ("failure", "pilot-stopped")
    assert process.wait(10) == 0


@pytest.mark.parametrize(
    "script",
    [
        "echo $$ >FOLDER/pid.new; mv FOLDER/pid.new FOLDER/pid; exec sleep 300",
        "sleep 300 & echo $! >FOLDER/pid.new; mv FOLDER/pid.new FOLDER/pid; wait $!",
    ],
    ids=["the payload dies first", "a child of the payload dies first"],
)
def test_a_payload_that_is_ended_with_its_pilot_is_no_failure_of_its_own(
    server: FakeServer, pilot_process: StartProcess, tmp_path: Path, script: str
) -> None:
    """Whoever cancels a batch job signals every process in it, in any order; a shell whose child died ends with an exit code."""
    claim = server.submit("sh", "-c", script.replace("FOLDER", str(tmp_path)))
    process = pilot_process()
    os.kill(written_pid(tmp_path / "pid"), signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    end = server.end_of(claim)
    assert (end["outcome"], end["reason"], end["error"]) == ("failure", "pilot-stopped", "told-to-stop")
    assert process.wait(10) == 0


def test_a_payload_that_is_killed_just_before_its_pilot_has_no_end(
    server: FakeServer, pilot_process: StartProcess, tmp_path: Path
) -> None:
    """The job was lost with its pilot; an end by signal would count against it."""
    claim = server.submit(
        "sh", "-c", f"echo $$ >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 300"
    )
    process = pilot_process()
    pid = written_pid(tmp_path / "pid")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the death of the payload")
    process.kill()
    process.wait(10)
    assert not list((tmp_path / "work").glob("pilot-*/spool/*.json")), "nothing for the next pilot to tell"
    assert [completion for completion in server.seen.completions if completion["claim"] == claim["claim"]] == []


def test_a_drain_order_ends_the_pilot_when_its_work_is_done(server: FakeServer, pilot: StartPilot) -> None:
    claim = server.submit("true")
    running = pilot()
    assert server.end_of(claim)["outcome"] == "ok"
    server.order("drain", {})
    assert running.wait() == 0
    assert server.seen.goodbyes == 1


def test_a_heartbeat_can_order_the_drain(server: FakeServer, pilot: StartPilot) -> None:
    server.heartbeat_every = 0.1
    server.failures.drain = True
    assert pilot().wait() == 0


def test_undelivered_ends_are_said_and_left_for_the_next_pilot(
    server: FakeServer, pilot: StartPilot, tmp_path: Path
) -> None:
    claim = server.submit("sh", "-c", f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    first = pilot(end_wait=0.3)
    until((tmp_path / "begun").exists)
    server.stop()
    (tmp_path / "go").touch()
    assert first.end() == 1
    (left,) = (tmp_path / "work").glob("pilot-*/spool/*.json")
    server.start()
    pilot()
    assert server.end_of(claim)["claim"] == claim["claim"]
    until(lambda: not left.exists(), "the spool to be cleared")


def test_no_claims_when_the_time_is_nearly_over(server: FakeServer, pilot: StartPilot) -> None:
    server.submit("true")
    assert pilot(time_left=59.0).wait() == 0
    assert not server.seen.claim_requests
    assert server.seen.registrations[0]["time_left"] == 59.0


def test_what_runs_is_stopped_before_the_time_is_over(server: FakeServer, pilot: StartPilot) -> None:
    claim = server.submit("sleep", "300")
    running = pilot(time_left=4.0, time_margin=1.0)
    end = server.end_of(claim)
    assert (end["reason"], end["signal"]) == ("pilot-stopped", 15)
    assert "the pilot's time is over" in end["log_tail"]
    assert end["error"] == "time-over"
    assert running.wait() == 0
    assert 0 < server.seen.claim_requests[0]["time_left"] <= 3.0


def test_a_pilot_asks_for_what_it_has_free(server: FakeServer, pilot: StartPilot) -> None:
    claims = [
        server.submit("sleep", "300", resources={"cpus": 3}),
        server.submit("sleep", "300", resources={"cpus": 1}),
    ]
    pilot(slots=3)
    until(lambda: any(request["max"] == 1 for request in server.seen.claim_requests), "a request for one more")
    first, last = server.seen.claim_requests[0], server.seen.claim_requests[-1]
    assert (first["max"], first["resources"]["cpus"]) == (3, 4)
    assert (last["max"], last["resources"]["cpus"]) == (1, 0)
    names = {claim["claim"] for claim in claims}
    until(
        lambda: any(set(heartbeat["claims"]) == names for heartbeat in server.seen.heartbeats),
        "a heartbeat that names both claims",
    )


def test_jobs_that_do_not_fit_together_run_one_after_the_other(
    server: FakeServer, pilot: StartPilot, tmp_path: Path
) -> None:
    script = f"mkdir {tmp_path}/lock || exit 1; sleep 0.1; rmdir {tmp_path}/lock"
    claims = [server.submit("sh", "-c", script, resources={"cpus": 3}) for _ in range(4)]
    pilot(slots=4)
    assert [server.end_of(claim)["exit_code"] for claim in claims] == [0, 0, 0, 0]


def test_batches_run_many_short_jobs_with_few_requests(server: FakeServer, pilot: StartPilot) -> None:
    claims = [server.submit("true") for _ in range(64)]
    assert pilot(batch=32, max_jobs=64).wait() == 0
    assert {end["claim"] for end in server.seen.completions} == {claim["claim"] for claim in claims}
    assert len(server.seen.completions) == 64
    assert len(server.seen.claim_requests) <= 6


def test_an_idle_pilot_ends(server: FakeServer, pilot: StartPilot) -> None:
    assert pilot(idle_exit=0.2).wait() == 0
    assert server.seen.goodbyes == 1


@pytest.mark.parametrize(("program", "runtimes"), [("/usr/bin/apptainer", ["apptainer"]), ("", [])])
def test_a_pilot_tells_what_runs_containers(
    server: FakeServer, pilot: StartPilot, program: str, runtimes: list[str]
) -> None:
    assert (
        pilot(
            idle_exit=0.2, surroundings=Surroundings(grace=1.0, containers=ContainerRuntimes(apptainer=program))
        ).wait()
        == 0
    )
    assert server.seen.registrations[0]["runtimes"] == runtimes


def test_a_pilot_registers_at_a_server_of_the_previous_release(server: FakeServer, pilot: StartPilot) -> None:
    server.failures.unknown_fields = frozenset({"runtimes"})
    assert pilot(idle_exit=0.2).wait() == 0
    assert "runtimes" not in server.seen.registrations[0]
    assert server.seen.goodbyes == 1


def test_a_refused_pilot_says_so(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wrong\n")
    words = ["--server", server.url, "--token-file", str(tmp_path / "token")]
    done = subprocess.run(
        [sys.executable, "-m", "forestay_pilot", *words, "--outputs", str(tmp_path), "--work", str(tmp_path)],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert re.search("refuses this pilot: 401", done.stderr)
    assert "wrong" not in done.stderr
