"""The executor as programs use it, on a real server and a real pilot."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, as_completed, wait
from functools import partial
from pathlib import Path

import pytest
from tests.unit.client.executor import functions
from tests.unit.client.executor.conftest import SLOTS, Site

from forestay.adapters.private_file import write_private
from forestay.client import Executor, ForestayClient, JobFailedError, NotCallable, NotFoundError, RemoteError

PATIENCE = 180.0


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, f"waited {PATIENCE:.0f} s in vain for {what}"
        time.sleep(0.01)


def test_a_call_gives_a_real_future(pool: Executor) -> None:
    future = pool.submit(functions.add, 2, other=3)
    assert isinstance(future, Future)
    results: list[Future[int]] = []
    future.add_done_callback(results.append)
    assert future.result(PATIENCE) == 5
    assert future.done()
    # Whoever waits for the result may be woken before callbacks are called.
    until(lambda: results == [future], "the callback")


def test_many_calls_in_order_and_as_they_come(pool: Executor) -> None:
    assert list(pool.map(functions.add, range(200), range(200))) == [2 * n for n in range(200)]
    calls = [pool.submit(functions.add, n) for n in range(20)]
    assert {future.result() for future in as_completed(calls, PATIENCE)} == set(range(20))
    done, open_ = wait(calls, PATIENCE)
    assert (len(done), len(open_)) == (20, 0)


async def test_asyncio_may_wait_for_it(site: Site) -> None:
    with site.client() as client, Executor(client) as pool:
        loop = asyncio.get_running_loop()
        assert await asyncio.wait_for(loop.run_in_executor(pool, functions.add, 1, 2), PATIENCE) == 3


VALUES = [
    None, True, 3, -1.5, "text ü \0", [1, [2]], (1, (2,)), {"a": 1}, {1: "a", (2, 3): None}, {"$": "dict", "of": []}, {1, 2},
    frozenset({"x"}), b"\x00\xff", 1 << 80, 2 + 3j, math.inf, "\ud800",
]  # fmt: skip


def test_plain_values_come_back_as_they_are(pool: Executor) -> None:
    values = [value for value in VALUES if value != "\ud800"]
    for sent, got in zip(values, pool.map(functions.same, values), strict=True):
        assert got == sent
        assert type(got) is type(sent)
    (nan,) = pool.map(functions.same, [math.nan])
    assert math.isnan(nan)


def test_what_cannot_travel_is_said_at_once(pool: Executor) -> None:
    for call in (
        lambda: pool.submit(lambda: 1),
        lambda: pool.submit(functions.same, object()),
        lambda: pool.submit(functions.same, "\ud800"),
        lambda: pool.submit(functions.same, "x" * 20_000),
    ):
        with pytest.raises(NotCallable):
            call()
    itself: list[object] = []
    itself.append(itself)
    with pytest.raises(NotCallable, match="contains itself"):
        pool.submit(functions.same, itself)


def test_a_partial_function_is_a_call_with_more_arguments(pool: Executor) -> None:
    assert pool.submit(partial(functions.add, other=4), 1).result(PATIENCE) == 5


def test_what_a_function_raises_is_raised_here(pool: Executor, client: ForestayClient) -> None:
    future = pool.submit(functions.fails, "no luck")
    with pytest.raises(functions.Unlucky) as raised:
        future.result(PATIENCE)
    assert raised.value.args == ("no luck", 7)
    assert "functions.py" in str(raised.value.__cause__)
    assert "raise Unlucky(words, 7)" in str(raised.value.__cause__)
    assert "forestay_pilot" not in str(raised.value.__cause__)
    job = client.job(future.job_id())
    assert job["state"] == "failed"
    assert job["last"] is not None
    assert job["last"]["reason"] == "exception"
    assert "about to fail" in client.log(job["id"])


def test_a_result_that_is_not_plain_is_an_exception_that_says_so(pool: Executor) -> None:
    with pytest.raises((TypeError, RemoteError), match="not a plain value"):
        pool.submit(functions.odd).result(PATIENCE)


def test_a_large_result_comes_through_its_manifest(pool: Executor, client: ForestayClient) -> None:
    future = pool.submit(functions.large, 300_000)
    assert future.result(PATIENCE) == "x" * 300_000
    winner = client.job(future.job_id())["winner"]
    assert winner is not None
    assert winner["manifest"] is not None
    assert winner["manifest"]["bytes"] > 300_000


def test_files_that_a_function_leaves_are_kept(pool: Executor, client: ForestayClient) -> None:
    keeping = pool.with_options(outputs=["*.txt"])
    future = keeping.submit(functions.leaves, "a.txt", "kept")
    assert future.result(PATIENCE)
    manifest = Path(client.outputs(future.job_id())["manifest"]["path"])
    assert (manifest.parent / "a.txt").read_text() == "kept"


def test_the_interpreter_stays_warm(pool: Executor) -> None:
    calls = [pool.submit(functions.whoami) for _ in range(40)]
    processes = {future.result(PATIENCE) for future in calls}
    assert len(processes) <= SLOTS


def test_a_function_that_kills_its_interpreter_fails_alone(pool: Executor) -> None:
    calls: list[Future[object]] = [pool.submit(functions.same, n) for n in range(10)]
    deadly = pool.submit(functions.dies)
    calls += [pool.submit(functions.same, n) for n in range(10, 30)]
    with pytest.raises(JobFailedError, match="signal 9"):
        deadly.result(PATIENCE)
    assert [future.result(PATIENCE) for future in calls] == list(range(30))


def test_a_call_is_tried_again_by_its_own_policy(pool: Executor, client: ForestayClient, tmp_path: Path) -> None:
    future = pool.with_options(max_attempts=3).submit(functions.fails_until, str(tmp_path / "tries"), 2)
    assert future.result(PATIENCE) == 3
    assert client.job(future.job_id())["attempt"] == 3


def test_needs_are_said_by_call(pool: Executor, client: ForestayClient) -> None:
    future = pool.with_options(cpus=2, memory="1 MiB", wall="10 min", priority=7).submit(functions.add, 1)
    assert future.result(PATIENCE) == 1
    job = client.job(future.job_id())
    assert (job["resources"]["cpus"], job["resources"]["memory"], job["resources"]["wall"]) == (2, 1 << 20, 600)
    assert job["priority"] == 7


def test_a_call_past_its_wall_limit_is_stopped(pool: Executor, gate: Callable[[], Path]) -> None:
    with pytest.raises(JobFailedError, match="wall-limit"):
        pool.with_options(wall=1).submit(functions.waits_for, str(gate())).result(PATIENCE)
    assert pool.submit(functions.add, 1).result(PATIENCE) == 1


def test_calls_are_cancelled_before_and_while_they_run(pool: Executor, gate: Callable[[], Path]) -> None:
    gates = [gate() for _ in range(SLOTS)]
    running = [pool.submit(functions.waits_for, str(path)) for path in gates]
    for path in gates:
        until(Path(f"{path}.begun").exists, "the calls to begin")
    waiting = pool.submit(functions.add, 1)
    assert waiting.cancel()
    assert running[0].cancel()
    assert running[0].cancelled()
    with pytest.raises(CancelledError):
        running[0].result()
    assert wait([waiting], PATIENCE).done == {waiting}
    assert wait(running[:1], PATIENCE).done == {running[0]}
    gates[1].touch()
    assert running[1].result(PATIENCE) == "done"
    assert not running[1].cancel()
    assert pool.submit(functions.add, 4).result(PATIENCE) == 4, "the slot is free again"


def test_what_waits_behind_a_long_call_is_given_back(
    pool: Executor, client: ForestayClient, gate: Callable[[], Path]
) -> None:
    assert list(pool.map(functions.add, range(50))) == list(range(50)), "calls are short, and some are held ready"
    gates = [gate() for _ in range(SLOTS)]
    calls: list[Future[object]] = []
    for path in gates:
        calls.append(pool.submit(functions.waits_for, str(path)))
        calls += [pool.submit(functions.same, n) for n in range(20)]
    for path in gates:
        until(Path(f"{path}.begun").exists, "the long calls to begin")
    filters = {"label": f"forestay/executor={pool.name}", "state": "running"}
    until(lambda: len(list(client.all_jobs(filters))) == SLOTS, "what was not begun to be given back")
    for path in gates:
        path.touch()
    assert [future.result(PATIENCE) for future in calls] == ["done", *range(20)] * SLOTS
    for job in client.all_jobs({"label": f"forestay/executor={pool.name}"}):
        assert (job["state"], job["failures"]) == ("completed", 0)


def test_environment_and_job_are_known_to_the_function(pool: Executor) -> None:
    future = pool.submit(functions.variable, "FORESTAY_JOB")
    assert future.result(PATIENCE) == future.job_id()
    own = pool.with_options(environment={"COLOUR": "green"})
    assert own.submit(functions.variable, "COLOUR").result(PATIENCE) == "green"
    assert pool.submit(functions.variable, "FORESTAY_ENROL_TOKEN").result(PATIENCE) is None


def test_an_interpreter_that_is_not_there_is_said(pool: Executor) -> None:
    with pytest.raises(JobFailedError, match="start-failed"):
        pool.with_options(python=["/no/such/python"]).submit(functions.add, 1).result(PATIENCE)


def test_another_program_attaches_to_what_one_left_behind(site: Site, gate: Callable[[], Path]) -> None:
    path = gate()
    with site.client() as first:
        left = Executor(first)
        name = left.submit(functions.waits_for, str(path)).job_id(PATIENCE)
        # As after a crash: nobody shuts the executor down.
        with site.client() as second, Executor(second) as pool:
            future = pool.attach(name)
            assert not future.done()
            path.touch()
            assert future.result(PATIENCE) == "done"
            assert pool.attach(name).result(PATIENCE) == "done"
            with pytest.raises(NotFoundError):
                pool.attach("no-such-job")
        left.shutdown()


def test_after_the_end_nothing_is_taken(client: ForestayClient) -> None:
    pool = Executor(client)
    future = pool.submit(functions.add, 1)
    pool.shutdown()
    assert future.result(0) == 1
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(functions.add, 1)


SCRIPT = """
import sys
from forestay.client import Executor, ForestayClient

def twice(n):
    return 2 * n

if __name__ == "__main__":
    with ForestayClient(sys.argv[1], sys.stdin.read()) as client, Executor(client) as pool:
        print(sum(pool.map(twice, range(10))))
"""


def test_functions_of_a_script_are_found(site: Site, tmp_path: Path) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(SCRIPT)
    token = site.running.domain.token("submitter", tenant=site.tenant)
    done = subprocess.run(
        [sys.executable, script, site.server.url],
        input=token,
        text=True,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("90\n", 0), done.stderr


def test_the_example_runs(site: Site, tmp_path: Path) -> None:
    token = tmp_path / "token"
    write_private(token, site.running.domain.token("submitter", tenant=site.tenant))
    example = Path(__file__).resolve().parents[4] / "examples" / "parameter_sweep.py"
    known = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
    done = subprocess.run(
        [sys.executable, example],
        env=known | {"FORESTAY_SERVER": site.server.url, "FORESTAY_TOKEN_FILE": str(token)},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("largest mean ")
