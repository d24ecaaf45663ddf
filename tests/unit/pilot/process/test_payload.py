"""What a payload is given, what is seen of it, and how it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.conftest import SOURCE, RunningPilot
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer, until

from forestay_pilot.process.payload import BadClaimError, Surroundings, make_payload, read_claim

StartPilot = Callable[..., RunningPilot]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def written_pid(path: Path) -> int:
    """Wait for a payload to write a process id."""
    text: str = until(lambda: path.exists() and path.read_text().strip(), f"a process id in {path.name}")
    return int(text)


def claim_document(**changes: Any) -> dict[str, Any]:
    base = {
        "job": "j1",
        "generation": 2,
        "attempt": 3,
        "claim": "c" * 32,
        "tenant": "physics",
        "index": 7,
        "parameters": {"sample": "A 1", "threads": 4, "bad-name": True},
        "resources": {"wall": 60},
        "specification": {"command": ["true"], "environment": {"MODE": "fast"}},
    }
    return {**base, **changes}


def test_a_good_end_says_what_the_payload_used(server: FakeServer, pilot: StartPilot) -> None:
    program = (
        "import sys, time; held = bytearray(80 << 20); print('begun'); print('done', file=sys.stderr); time.sleep(.1)"
    )
    claim = server.submit(sys.executable, "-c", program)
    pilot()
    end = server.end_of(claim)
    assert {key: end[key] for key in ("job", "generation", "attempt", "claim")} == {
        key: claim[key] for key in ("job", "generation", "attempt", "claim")
    }
    assert (end["outcome"], end["reason"], end["exit_code"], end["signal"]) == ("ok", "exit", 0, None)
    assert end["peak_memory"] > 80 << 20
    assert 0.1 <= end["wall"] < 10
    assert 0 < end["cpu"] < 10
    assert sorted(end["log_tail"].split()) == ["begun", "done"]
    assert end["log_bytes"] == len("begun\ndone\n")
    assert end["manifest"] is None
    assert end["host"] == "node1"
    assert end["started"].endswith("Z")


def test_exit_codes_and_signals_are_told_apart(server: FakeServer, pilot: StartPilot) -> None:
    failing = server.submit("sh", "-c", "echo no luck; exit 9")
    killed = server.submit("sh", "-c", "kill -SEGV $$")
    absent = server.submit("no-such-program-anywhere")
    empty = server.submit()
    pilot()
    end = server.end_of(failing)
    assert (end["outcome"], end["reason"], end["exit_code"], end["signal"]) == ("failure", "exit", 9, None)
    assert end["disk_left"] > 0
    assert end.get("oom_kills", 0) == 0
    assert end["log_tail"] == "no luck\n"
    end = server.end_of(killed)
    assert (end["reason"], end["exit_code"], end["signal"]) == ("signal", None, signal.SIGSEGV)
    end = server.end_of(absent)
    assert end["reason"] == "start-failed"
    assert "No such file" in end["log_tail"]
    assert server.end_of(empty)["reason"] == "start-failed"


def test_a_claim_that_cannot_be_run_harms_no_other(server: FakeServer, pilot: StartPilot) -> None:
    server.submit("true", claim="../../escape")
    bad = server.submit("true", environment={"A=B": "x"})
    good = server.submit("true")
    pilot()
    assert server.end_of(good)["outcome"] == "ok"
    assert server.end_of(bad)["reason"] == "start-failed"
    assert "../../escape" not in [end["claim"] for end in server.seen.completions]


def test_command_and_environment_are_filled_in() -> None:
    document = claim_document(
        resources={"memory": 1 << 30, "wall": 60},
        specification={
            "command": ["run", "{sample}-{index}", "awk '{print $1}'", "{threads}"],
            "environment": {"MODE": "fast", "PATH": "/opt/bin", "FORESTAY_JOB": "forged"},
        },
    )
    payload = make_payload(read_claim(document), "/w", "/l", Surroundings(inherited={"PATH": "/bin", "HOME": "/h"}))
    assert payload.argv == ["run", "A 1-7", "awk '{print $1}'", "4"]
    assert payload.wall == 60
    assert payload.environment == {
        "MODE": "fast",
        "PATH": "/opt/bin",
        "HOME": "/h",
        "FORESTAY_JOB": "j1",
        "FORESTAY_ATTEMPT": "3",
        "FORESTAY_FENCE": "2.3",
        "FORESTAY_CLAIM": "c" * 32,
        "FORESTAY_INDEX": "7",
        "FORESTAY_MEMORY": "1073741824",
        "FORESTAY_OUTPUTS": "/w",
        "FORESTAY_PARAM_SAMPLE": "A 1",
        "FORESTAY_PARAM_THREADS": "4",
        "FORESTAY_PARAM_BAD_NAME": "true",
    }


@pytest.mark.parametrize("missing", ["job", "generation", "attempt", "claim"])
def test_a_claim_without_its_name_is_no_claim(missing: str) -> None:
    document = claim_document()
    del document[missing]
    with pytest.raises(BadClaimError):
        read_claim(document)


def test_a_payload_sees_neither_the_token_nor_the_pilots_environment(
    server: FakeServer, pilot_process: Callable[..., Any]
) -> None:
    # The payload looks where a nosy one would: its environment, and those of its ancestors. A payload of root may
    # read all of the pilot, so the token must be gone from there; for any other, the pilot is not dumpable.
    program = """
import os
print("OWN", dict(os.environ))
def shown(pid):
    for part in ("environ", "cmdline"):
        try:
            print(part, open(f"/proc/{pid}/{part}", "rb").read())
        except PermissionError:
            print(part, "refused")
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
print("GUARD")
pilot = shown(os.getppid())
print("PILOT")
assert shown(pilot) == int(os.environ["TEST"])
"""
    claim = server.submit(sys.executable, "-c", program, environment={"TEST": str(os.getpid())})
    pilot_process()
    end = server.end_of(claim)
    assert end["outcome"] == "ok", end["log_tail"]
    assert end["log_tail"].startswith("OWN")
    assert ENROL_TOKEN not in end["log_tail"]
    assert "pilot-token-" not in end["log_tail"]
    own, _, of_pilot = end["log_tail"].partition("PILOT")
    assert "FORESTAY_CLAIM" in own
    assert "FORESTAY_ENROL_TOKEN" not in own
    assert "SECRET_OF_THE_PILOT" not in own
    assert "environ" in of_pilot


def test_a_pilot_is_not_dumpable() -> None:
    look = (
        "import ctypes; from forestay_pilot.process import libc; libc.forbid_dumps(); print(ctypes.CDLL(None).prctl(3))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", look], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "0"


def test_the_log_is_capped_and_the_tail_is_the_newest(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    keep = tmp_path / "log"
    logs = tmp_path / "work"
    script = f"yes 0123456 | head -c 100000; echo the end; sleep 0.3; cp {logs}/pilot-*/logs/$FORESTAY_CLAIM.log {keep}"
    claim = server.submit("sh", "-c", script)
    pilot(surroundings=Surroundings(log_cap=5000))
    end = server.end_of(claim)
    assert end["outcome"] == "ok", end["log_tail"]
    assert end["log_tail"].endswith("the end\n")
    assert end["log_bytes"] == 100000 + len("the end\n")
    text = keep.read_text()
    assert text.startswith("0123456\n" * 600)
    assert "[the log is cut here: it reached 5000 bytes]" in text
    assert len(text) < 5100


def test_a_payload_stopped_before_it_has_begun_dies_at_once(server: FakeServer, pilot: StartPilot) -> None:
    claims = [server.submit("sleep", "300") for _ in range(12)]
    pilot(slots=12, surroundings=Surroundings(grace=60.0))
    until(lambda: not server.jobs, "the claims to be given")
    for claim in claims:
        server.order("cancel", {"claim": claim["claim"]})
    assert [server.end_of(claim)["reason"] for claim in claims] == ["cancelled"] * 12


def test_a_cancel_that_overtakes_its_claim_is_kept(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    early, other = server.submit("touch", str(tmp_path / "started")), server.submit("true")
    jobs, server.jobs[:] = list(server.jobs), []
    pilot()
    server.order("cancel", {"claim": early["claim"]})
    until(lambda: all(orders.empty() for orders in server.orders.values()), "the order to be on its way")
    with server.work:
        server.jobs.extend(jobs[1:])
        server.work.notify_all()
    server.end_of(other)  # by then the order has long been read
    with server.work:
        server.jobs.extend(jobs[:1])
        server.work.notify_all()
    assert server.end_of(early)["reason"] == "cancelled"
    assert not (tmp_path / "started").exists()


def test_a_stopped_payload_is_never_a_success(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    claim = server.submit("sh", "-c", f"trap 'exit 0' TERM; touch {tmp_path}/begun; while :; do sleep 0.02; done")
    running = pilot()
    until((tmp_path / "begun").exists)
    running.end()
    end = server.end_of(claim)
    assert (end["outcome"], end["reason"], end["exit_code"]) == ("failure", "pilot-stopped", 0)


def test_the_wall_limit_ends_a_payload_that_ignores_sigterm(server: FakeServer, pilot: StartPilot) -> None:
    claim = server.submit("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done", resources={"wall": 0.3})
    pilot(surroundings=Surroundings(grace=0.3))
    end = server.end_of(claim)
    assert (end["outcome"], end["reason"], end["signal"]) == ("failure", "wall-limit", signal.SIGKILL)
    assert 0.6 <= end["wall"] < 5


def test_a_cancel_order_kills_the_whole_process_group(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    script = f"trap '' TERM; sleep 300 & echo $! > {tmp_path}/child; wait; wait"
    claim = server.submit("sh", "-c", script)
    pilot()
    child = written_pid(tmp_path / "child")
    server.order("cancel", {"claim": "another claim"})
    server.order("cancel", {"claim": claim["claim"]})
    end = server.end_of(claim)
    assert (end["outcome"], end["reason"]) == ("failure", "cancelled")
    assert not alive(child)


def test_a_heartbeat_can_cancel_and_a_waiting_claim_is_never_started(
    server: FakeServer, pilot: StartPilot, tmp_path: Path
) -> None:
    server.heartbeat_every = 0.5
    running = server.submit("sleep", "300")
    waiting = server.submit("touch", str(tmp_path / "started"))
    pilot(batch=2)
    until(
        lambda: (
            set(server.seen.heartbeats[-1]["claims"] if server.seen.heartbeats else ())
            == {running["claim"], waiting["claim"]}
        )
    )
    server.cancelled += [waiting["claim"], running["claim"]]
    assert server.end_of(running)["reason"] == "cancelled"
    assert server.end_of(waiting)["reason"] == "cancelled"
    assert not (tmp_path / "started").exists()


def test_processes_that_leave_their_session_die_with_their_payload(
    server: FakeServer, pilot: StartPilot, tmp_path: Path
) -> None:
    script = f"setsid sh -c 'echo $$ > {tmp_path}/stray; exec sleep 300' & while [ ! -s {tmp_path}/stray ]; do sleep 0.02; done"
    other = server.submit("sleep", "300")
    claim = server.submit("sh", "-c", script)
    pilot(slots=2)
    assert server.end_of(claim)["outcome"] == "ok"
    stray = written_pid(tmp_path / "stray")
    until(lambda: not alive(stray), "the stray's death")
    assert other["claim"] not in [end["claim"] for end in server.seen.completions]


@pytest.mark.finding("F-B2")
@pytest.mark.parametrize("way", ["setsid", "env -i setsid", "env -i setsid setsid -f"])
def test_a_process_without_session_and_environment_is_gone_when_the_end_is_told(
    server: FakeServer, pilot: StartPilot, tmp_path: Path, way: str
) -> None:
    """While another payload lives on the pilot; it is found by the tree of processes alone."""
    stray = f"{way} /bin/sh -c 'echo $$ > {tmp_path}/stray; exec /bin/sleep 300'"
    script = f"PATH=/usr/bin:/bin; {stray} & while [ ! -s {tmp_path}/stray ]; do sleep 0.02; done"
    other = server.submit("sleep", "300")
    claim = server.submit("sh", "-c", script)
    pilot(slots=2)
    assert server.end_of(claim)["outcome"] == "ok"
    assert not alive(written_pid(tmp_path / "stray")), "the next attempt would run beside it"
    assert other["claim"] not in [end["claim"] for end in server.seen.completions]


@pytest.mark.finding("F-B2")
def test_a_daemon_of_a_living_payload_is_left_alone(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    """Another payload ends meanwhile, and what that one left is looked for."""
    daemon = f"env -i setsid -f /bin/sh -c 'echo $$ > {tmp_path}/daemon; exec /bin/sleep 300'"
    running = server.submit("sh", "-c", f"PATH=/usr/bin:/bin; {daemon}; touch {tmp_path}/begun; exec sleep 300")
    pilot(slots=2)
    until((tmp_path / "begun").exists)
    daemon_pid = written_pid(tmp_path / "daemon")
    assert server.end_of(server.submit("sh", "-c", "setsid sleep 300 & true"))["outcome"] == "ok"
    assert alive(daemon_pid)
    server.cancelled.append(running["claim"])
    assert server.end_of(running)["reason"] == "cancelled"
    assert not alive(daemon_pid)


@pytest.mark.parametrize("effects", ["external", "internal"])
def test_only_external_effects_end_with_the_lease(
    server: FakeServer, pilot: StartPilot, tmp_path: Path, effects: str
) -> None:
    server.lease, server.heartbeat_every = 4.0, 1.0
    claim = server.submit("sh", "-c", f"touch {tmp_path}/begun; sleep 7", effects=effects)
    pilot()
    until((tmp_path / "begun").exists)
    server.stop()
    time.sleep(4.3)  # the lease has to pass while no server answers: only time does that
    server.start()
    end = server.end_of(claim)
    if effects == "external":
        assert (end["outcome"], end["reason"], end["error"]) == ("failure", "pilot-stopped", "lease-lost")
        assert (end["signal"], "lease-lost" in end["log_tail"]) == (signal.SIGTERM, True)
    else:
        assert end["outcome"] == "ok"


def test_what_was_held_ready_when_the_lease_passed_is_given_back_unbegun(
    server: FakeServer, pilot: StartPilot, tmp_path: Path
) -> None:
    """Another may have run it meanwhile, to its end: no later heartbeat makes the claim good again."""
    server.lease, server.heartbeat_every = 4.0, 1.0
    first = server.submit("sh", "-c", f"touch {tmp_path}/begun; while ! test -e {tmp_path}/gate; do sleep 0.02; done")
    ready = server.submit("touch", str(tmp_path / "ready"))
    pilot(batch=2)
    until((tmp_path / "begun").exists)
    server.stop()
    time.sleep(4.3)  # the lease has to pass while no server answers: only time does that
    server.start()
    (tmp_path / "gate").touch()
    assert server.end_of(first)["outcome"] == "ok"
    assert server.end_of(ready)["reason"] == "not-started"
    assert not (tmp_path / "ready").exists()
