"""The gate: every tier that a commit must pass, on this machine, with real servers of its own.

Called by `.ci/run` once the packages are installed. Phases follow each other; the lanes of a phase run side by side, and the tiers of a lane one
after the other. A failed tier does not stop the others; the run fails at its end if any did. At most two failed tests of a run are repeated, alone;
what passes only then is unsteady: its name is written to tests/unsteady.txt, and every later run fails until it is removed with its fix.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.gate_results import (  # noqa: E402 - the path comes first
    TABLE,
    Table,
    TierResult,
    file_times,
    forget_old_runs,
    read_tests,
    results_folder,
    save_table,
)
from scripts.ledger import RUN  # noqa: E402

LIMIT = 85 * 60
"""Seconds; below the 90 minutes after which a run is cut off without a word."""
SLOW, VERY_SLOW = 1.7, 2.4
"""So many times as slow as the machine for which limits are written: from here on tests wait for processors instead of for their conditions."""
HUNG = "-o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true"
"""Seconds after which a test is ended with the stacks of its threads: one that never returns would take every later tier's time, and leave no name."""
REPEATS = 2
"""Failed tests that are repeated in one run."""
UNSTEADY = ROOT / "tests" / "unsteady.txt"


@dataclass(frozen=True, slots=True)
class Tier:
    """One command; its tests, if it is a run of pytest, are kept one by one."""

    name: str
    command: str
    is_pytest: bool = False


PHASES: tuple[tuple[tuple[Tier, ...], ...], ...] = (
    (
        (Tier("servers", "just servers-up"), Tier("chromium", "scripts/servers install chromium")),
        (Tier("check", "just check"), Tier("pages-build", "just pages")),
    ),
    ((Tier("unit", "just test", is_pytest=True), Tier("pilot-39", "just test-39", is_pytest=True)),),
    (
        (Tier("live-beside", "just live-beside", is_pytest=True),),
        (
            Tier("release", "just release-check"),
            Tier("quickstart", "just quickstart"),
            Tier("model", "just model small"),
        ),
    ),
    (
        (Tier("live-pairs", "just live-pairs", is_pytest=True),),
        (
            Tier("pages", "just pages-test", is_pytest=True),
            # Ports of its own: chaos has a cluster at 9220 too.
            Tier("linearizability", "just linearizability 5000 --port 9240 --postgres-port 5452"),
        ),
    ),
    (
        (Tier("chaos", "just chaos small"),),
        (
            # Tests that mostly wait: chaos judges pilots by how soon their heartbeats arrive.
            Tier("chaos-runs", "just chaos-runs small --seed 1"),
            Tier(
                "chaos-playbooks",
                "just chaos-playbooks --seed 1 --times 1 --actions remove-run,compensate,resubmit,continue-all-runs",
            ),
        ),
    ),
    ((Tier("measured", "just measured", is_pytest=True),),),
    ((Tier("bench-smoke", "just bench-smoke"),),),
    ((Tier("ledger", "just ledger --rows P0,P1,P2,P3,P4"),),),
)
"""Add new tiers where processors are idle; `just ci-times` shows where."""


class Gate:
    """One run."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.began = time.monotonic()
        self.tiers: list[TierResult] = []
        self.unsteady: list[str] = []
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._repeats_left = REPEATS
        self._stopped = False

    def run(self) -> bool:
        """Every tier; whether all passed."""
        known = known_unsteady()
        if known:
            print(
                "These tests passed only when repeated. Fix each and remove it from tests/unsteady.txt:",
                *known,
                sep="\n  ",
            )
            self._note(TierResult("unsteady", 0, 0, f"FAILED ({len(known)} known)"))
        for phase in PHASES:
            # Before each phase: a machine that shares its processors with others is slow at times.
            times_slower = slowness()
            os.environ["FORESTAY_BESIDE"] = "4" if times_slower <= SLOW else "3" if times_slower <= VERY_SLOW else "2"
            if times_slower > SLOW:
                print(f"\n{times_slower:.1f} times slower than the reference: fewer tests side by side", flush=True)
            lanes = [
                threading.Thread(target=self._run_lane, args=(lane,), kwargs={"shown": number == 0})
                for number, lane in enumerate(phase)
            ]
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()
        return all(tier.passed for tier in self.tiers)

    def stop(self) -> None:
        """End what runs, and begin nothing else."""
        self._stopped = True
        with self._lock:
            for group in self._running:
                os.killpg(group, signal.SIGTERM)

    def _run_lane(self, lane: tuple[Tier, ...], *, shown: bool) -> None:
        for tier in lane:
            self._note(self._run_tier(tier, shown=shown))

    def _note(self, tier: TierResult) -> None:
        with self._lock:
            self.tiers.append(tier)

    def _run_tier(self, tier: Tier, *, shown: bool) -> TierResult:
        began = time.monotonic()
        cache = f".pytest_cache/{tier.name}"
        failures = ROOT / cache / "v/cache/lastfailed"
        failures.unlink(missing_ok=True)
        options = f"{HUNG} -o cache_dir={cache} --junitxml={self.results / tier.name}.xml" if tier.is_pytest else ""
        code, cpu = self._execute(tier.name, tier.command, options, shown=shown)
        result = {0: "passed", 124: "out of time"}.get(code, f"FAILED ({code})")
        if code and tier.is_pytest:
            failed = list(json.loads(failures.read_text())) if failures.exists() else []
            with self._lock:
                may_repeat = 0 < len(failed) <= self._repeats_left
                self._repeats_left -= len(failed) if may_repeat else 0
            if may_repeat:
                again = f"{HUNG} -o cache_dir={cache} --junitxml={self.results / tier.name}.again.xml --last-failed --last-failed-no-failures none"
                code, more = self._execute(tier.name, f"{tier.command} -n 0", again, shown=shown)
                cpu += more
                if code == 0:
                    result = f"passed, {len(failed)} only when repeated"
                    self.unsteady += failed
        return TierResult(tier.name, round(time.monotonic() - began, 1), round(cpu, 1), result)

    def _execute(self, name: str, command: str, options: str, *, shown: bool) -> tuple[int, float]:
        """Run a command within the time that is left; its exit code and the processor time of it and all that it waited for."""
        left = LIMIT - (time.monotonic() - self.began)
        if left <= 0 or self._stopped:
            return 124, 0.0
        environment = os.environ | {"PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} {options}".strip()}
        log = self.results / f"{name}.log"
        with log.open("a") as output:
            if shown:
                print(f"\n== {name}: {command}", flush=True)
            child = subprocess.Popen(  # noqa: S602 - commands of this file
                command,
                shell=True,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=None if shown else output,
                stderr=None if shown else subprocess.STDOUT,
                start_new_session=True,
            )
            with self._lock:
                self._running.add(child.pid)
            out_of_time, ended = threading.Event(), threading.Event()

            def give_up() -> None:
                out_of_time.set()
                os.killpg(child.pid, signal.SIGTERM)
                if not ended.wait(60):  # once it has ended, its number may be another's
                    os.killpg(child.pid, signal.SIGKILL)

            timer = threading.Timer(left, give_up)
            timer.daemon = True
            timer.start()
            _, status, usage = os.wait4(child.pid, 0)
            ended.set()
            timer.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
            with self._lock:
                self._running.discard(child.pid)
        if not shown:
            print(f"\n== {name}: {command}\n{log.read_text(errors='replace')}", flush=True)
        return 124 if out_of_time.is_set() else child.returncode, usage.ru_utime + usage.ru_stime


def slowness() -> float:
    """How many times slower than the reference this machine is now, with every processor in use."""
    probe = [sys.executable, "-c", "from tests.speed import typical; print(typical())"]
    probes = [subprocess.Popen(probe, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(os.cpu_count() or 1)]
    return statistics.mean(float(running.communicate()[0]) for running in probes)


def known_unsteady() -> list[str]:
    """Tests that passed only when repeated, in an earlier run."""
    lines = UNSTEADY.read_text().splitlines() if UNSTEADY.exists() else []
    return [line for line in lines if line and not line.startswith("#")]


def write_unsteady(names: list[str]) -> None:
    note = (
        ""
        if UNSTEADY.exists()
        else "# Tests that passed only when repeated. Fix each at its cause, then remove its line.\n"
    )
    with UNSTEADY.open("a") as file:
        file.write(note + "".join(f"{name}\n" for name in names))


def processor_ticks() -> tuple[int, int]:
    """Idle ones, and all."""
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def print_table(table: Table, unsteady: list[str]) -> None:
    cores = os.cpu_count() or 1
    print(f"\n{'tier':<16} {'seconds':>8} {'CPU-s':>8} {'busy':>6}  result")
    for tier in table.tiers:
        share = 100 * tier.cpu / (tier.seconds * cores) if tier.seconds else 0
        print(f"{tier.name:<16} {tier.seconds:>8.0f} {tier.cpu:>8.0f} {share:>5.0f}%  {tier.result}")
    verdict = "passed" if all(tier.passed for tier in table.tiers) else "FAILED"
    print(f"{'total':<16} {table.seconds:>8.0f} {'':>8} {100 * table.busy:>5.0f}%  {verdict}")
    if unsteady:
        print("\nUnsteady, written to tests/unsteady.txt; to be fixed before anything else:", *unsteady, sep="\n  ")


def main() -> int:
    began = datetime.now(UTC)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    results = results_folder() / began.strftime("%Y%m%dT%H%M%S")
    results.mkdir(parents=True)
    forget_old_runs(results_folder())
    idle, ticks = processor_ticks()
    gate = Gate(results)

    def interrupted(_signal: int, _frame: FrameType | None) -> None:
        gate.stop()

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    # Servers of this run only, whatever else runs on the machine; world-readable because they run as nobody.
    with tempfile.TemporaryDirectory(prefix="forestay-servers-", ignore_cleanup_errors=True) as servers:
        Path(servers).chmod(0o755)
        os.environ["FORESTAY_SERVERS_DIR"] = servers
        os.environ[RUN] = str(results)
        try:
            passed = gate.run()
        finally:
            subprocess.run(["scripts/servers", "stop"], cwd=ROOT, check=False)
    idle_after, ticks_after = processor_ticks()
    busy = 1 - (idle_after - idle) / max(1, ticks_after - ticks)
    files = {
        name: times
        for junit in sorted(results.glob("*.xml"))
        for name, times in file_times(junit.stem, read_tests(junit)).items()
    }
    seconds = round(time.monotonic() - gate.began, 1)
    table = Table(
        commit.stdout.strip(), began.isoformat(timespec="seconds"), seconds, round(busy, 3), gate.tiers, files
    )
    save_table(results / TABLE, table)
    if gate.unsteady:
        write_unsteady(gate.unsteady)
    print_table(table, gate.unsteady)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
