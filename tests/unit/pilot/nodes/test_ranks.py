"""The ranks of a job on stand-ins for nodes: they end together, whatever is killed, and each tells how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.speed import clock_limit
from tests.unit.pilot.fake_server import FakeServer, until
from tests.unit.pilot.nodes.fake_nodes import FakeNodes, alive, shared, wait_for_file

from forestay_pilot.nodes.rank import PATIENCE

StartPilot = Callable[..., subprocess.Popen[bytes]]
WAIT = clock_limit(60)
PIDS = 'echo $$ > "$FORESTAY_OUTPUTS/pid$FORESTAY_RANK.new"; mv "$FORESTAY_OUTPUTS/pid$FORESTAY_RANK.new" "$KEEP/$FORESTAY_RANK"'


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[FakeNodes]:
    made = FakeNodes(tmp_path / "nodes")
    yield made
    made.close()


@pytest.fixture
def pilot(nodes: FakeNodes, pilot_process: StartPilot) -> subprocess.Popen[bytes]:
    return pilot_process("--nodes", "2", "--nodes-launcher", json.dumps([str(nodes.launcher), "{nodes}"]))


def _submit(server: FakeServer, folder: Path, script: str, **changes: Any) -> dict[str, Any]:
    """A job on both nodes, each of whose ranks first writes its process id."""
    return server.submit("sh", "-c", f"{PIDS}\n{script}", environment={"KEEP": str(folder)}, **changes)


def _pids(folder: Path) -> list[int]:
    return [int(wait_for_file(folder / str(rank), WAIT)) for rank in (0, 1)]


def _all_ended(pids: list[int]) -> bool:
    return not any(alive(pid) for pid in pids)


def test_all_ranks_succeed_and_the_outputs_are_the_jobs(
    server: FakeServer, pilot: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    claim = _submit(server, tmp_path, 'echo "$FORESTAY_RANK" > "out$FORESTAY_RANK"', outputs=["out*"])
    end = server.end_of(claim)
    assert (end["outcome"], end["exit_code"]) == ("ok", 0)
    assert "ranks" not in end
    assert end["manifest"]["files"] == 2
    assert server.seen.claim_requests[0]["resources"]["nodes"] == 2
    until(lambda: not shared(tmp_path / "work"), "the folder of the ranks is removed")


def test_one_failed_rank_is_one_failure_with_the_evidence_of_all(
    server: FakeServer, pilot: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    wait = f"while [ ! -e {tmp_path}/0 ]; do sleep 0.02; done"
    script = f'if [ "$FORESTAY_RANK" = 1 ]; then {wait}; echo "mesh is torn"; exit 3; fi; echo waiting; sleep 300'
    end = server.end_of(_submit(server, tmp_path, script))
    assert (end["outcome"], end["reason"], end["exit_code"], end["signal"]) == ("failure", "exit", 3, None)
    assert end["ranks"] == [
        {"rank": 1, "host": "n2", "exit_code": 3},
        {"rank": 0, "host": "n1", "signal": 9, "stopped_for": "rank 1 failed"},
    ]
    tail = end["log_tail"].splitlines()
    assert tail[-2:] == ["[pilot: rank 1 on n2: exit code 3]", "mesh is torn"], "what failed first is read last"
    assert "[pilot: rank 0 on n1: ended by signal 9, since rank 1 failed]" in tail
    assert _all_ended(_pids(tmp_path))


def test_a_rank_that_is_killed_fails_the_job_by_its_signal(
    server: FakeServer, pilot: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    claim = _submit(server, tmp_path, "sleep 300")
    pids = _pids(tmp_path)
    os.kill(pids[0], signal.SIGSEGV)
    end = server.end_of(claim)
    assert (end["reason"], end["signal"]) == ("signal", signal.SIGSEGV)
    assert end["ranks"][0] == {"rank": 0, "host": "n1", "signal": signal.SIGSEGV}
    assert _all_ended(pids)


def test_a_rank_whose_node_is_gone_is_named(
    server: FakeServer, nodes: FakeNodes, pilot: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """What stood around the rank is gone without a word, too."""
    claim = _submit(server, tmp_path, "sleep 300")
    pids = _pids(tmp_path)
    nodes.ranks[1].kill()
    until(lambda: not alive(pids[1]), "it takes its command along")
    server.order("cancel", {"claim": claim["claim"]})
    end = server.end_of(claim)
    assert end["reason"] == "cancelled"
    assert {"rank": 1, "host": "n2", "stopped_for": "its end is unknown"} in end["ranks"]
    assert _all_ended(pids)


def test_a_cancelled_job_ends_on_all_nodes(server: FakeServer, pilot: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Also what left its rank's session, and although the launcher passes no signal on."""
    claim = _submit(
        server, tmp_path, f"setsid sh -c 'echo $$ > {tmp_path}/left\"$FORESTAY_RANK\"; sleep 300' & sleep 300"
    )
    left = [int(wait_for_file(tmp_path / f"left{rank}", WAIT)) for rank in (0, 1)]
    server.order("cancel", {"claim": claim["claim"]})
    assert server.end_of(claim)["reason"] == "cancelled"
    assert _all_ended([*_pids(tmp_path), *left])


def test_ranks_end_when_their_pilot_is_killed(
    server: FakeServer, pilot: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    _submit(server, tmp_path, "sleep 300")
    pids = _pids(tmp_path)
    pilot.kill()
    until(lambda: _all_ended(pids), "no rank outlives its pilot", patience=WAIT + 2 * PATIENCE)


def test_a_launcher_that_starts_nothing_is_a_failed_start(server: FakeServer, pilot_process: StartPilot) -> None:
    pilot_process("--nodes", "2", "--nodes-launcher", '["true"]')
    end = server.end_of(server.submit("true"))
    assert (end["outcome"], end["reason"]) == ("failure", "start-failed")
    assert "0 ranks on 2 nodes" in end["log_tail"]


@pytest.mark.parametrize("launcher", ["[]", '"srun"', '["srun", 2]', "srun"])
def test_a_launcher_is_a_list_of_words(pilot_process: StartPilot, launcher: str) -> None:
    pilot = pilot_process("--nodes", "2", "--nodes-launcher", launcher)
    assert pilot.wait(WAIT) != 0
