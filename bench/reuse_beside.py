"""The same work again with one changed input of very many, beside Snakemake and Nextflow: how much is run again, how long it takes, and which reason is given.

    just bench reuse_beside --inputs 1000

One tiny job for each input file, two at once. It is run once, and then again four times: with *nothing* changed, with one file *touched* (a new time, the same bytes), with the
bytes of one file *changed*, and with the *command* of all jobs changed. The jobs write down that they ran, so that what was run is counted alike for all. Seconds are from the start of
a command (of a run, for ours) to its end; CPU is that of all processes, for ours with server, reconciler, orchestrator, Temporal, store and pilot.
Each system works as it does by default but for what reuses results: `reuse: true`, Snakemake as it is, Nextflow with `-resume`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.system.insertion.nextflow import QUIET, nextflow_command

from bench.flow_beside import WORKERS, real_pilot
from bench.harness import keep, leave, pressure
from bench.peers.peer import installed
from bench.whole_site import WholeSite, cpu_of, whole_site

CHANGES = ("first", "nothing", "touched", "changed", "command")
FLOW = """
forestay: 1
name: reused
reuse: true
tasks:
  each:
    scatter: {{file: {{files: "{folder}/in/*.txt"}}}}
    inputs: {{in.txt: "${{file}}"}}
    run: wc {flag} < in.txt > out.txt; basename "${{file}}" >> {folder}/ran
    outputs: {{out: out.txt}}
"""
SNAKEFILE = """
NAMES = glob_wildcards("in/{{name}}.txt").name
rule last:
    input: expand("out/{{name}}", name=NAMES)
rule each:
    input: "in/{{name}}.txt"
    output: "out/{{name}}"
    shell: "wc {flag} < {{input}} > {{output}}; basename {{input}} >> ran"
"""
NEXTFLOW = """
process each {{
  input: path x
  output: path 'out.txt'
  script: "wc {flag} < ${{x}} > out.txt; basename ${{x}} >> {folder}/ran"
}}
workflow {{ each(Channel.fromPath('{folder}/in/*.txt')) }}
"""


class Cost(NamedTuple):
    seconds: float
    cpu: float
    reason: str
    """What the system says of a job that ran; empty: nothing."""


@dataclass(slots=True)
class Row:
    system: str
    change: str
    ran: int
    right: bool
    """Exactly the jobs ran that had to."""
    seconds: float
    cpu: float
    reason: str


@dataclass(slots=True)
class Inputs:
    """The files, and what is done to one of them."""

    folder: Path
    many: int

    def __post_init__(self) -> None:
        (self.folder / "in").mkdir(parents=True)
        for number in range(self.many):
            self._file(number).write_text("x" * (number % 50) + "\n")

    @property
    def ran(self) -> list[str]:
        """The names of the inputs whose jobs ran since the last look."""
        place = self.folder / "ran"
        names = place.read_text().split() if place.exists() else []
        place.unlink(missing_ok=True)
        return names

    def change(self, what: str) -> None:
        if what == "touched":
            os.utime(self._file(self.many // 2))
        elif what == "changed":
            self._file(self.many // 3).write_text("changed\n")

    def expected(self, what: str) -> list[str]:
        if what in ("first", "command"):
            return sorted(self._file(number).name for number in range(self.many))
        return [self._file(self.many // 3).name] if what == "changed" else []

    def _file(self, number: int) -> Path:
        return self.folder / "in" / f"{number:06}.txt"


def row(system: str, change: str, inputs: Inputs, cost: Cost) -> Row:
    ran = inputs.ran
    made = Row(system, change, len(ran), sorted(ran) == inputs.expected(change), *cost)
    print(f"  {system}, {change}: {made.ran} jobs ran, {made.seconds:.1f} s, {made.cpu:.1f} s CPU; {made.reason or 'no reason given'}", flush=True)  # fmt: skip
    return made


def flag(change: str) -> str:
    return "-m" if change == "command" else "-c"


async def forestay(many: int, folder: Path, store: str) -> list[Row]:
    inputs, rows = Inputs(folder / "forestay", many), []
    async with whole_site(own=True, store=store) as site:
        outputs = site.folder / "outputs"
        outputs.mkdir()
        await site.start(flow_files=inputs.folder, outputs=outputs)
        pilot = real_pilot(site)
        try:
            for change in CHANGES:
                inputs.change(change)
                before, since = sum(site.cpu().values()) + cpu_of(pilot.pid), time.monotonic()
                run = await site.start_run(FLOW.format(folder=inputs.folder, flag=flag(change)))
                await _completed(site, run)
                took, spent = time.monotonic() - since, sum(site.cpu().values()) + cpu_of(pilot.pid) - before
                rows.append(row("forestay", change, inputs, Cost(took, spent, await _why(site, run, inputs, change))))
        finally:
            pilot.terminate()
            pilot.wait(60)
    return rows


async def _completed(site: WholeSite, run: str) -> None:
    while True:
        state = await site.get(f"/v1/runs/{run}", "viewer")
        if state["state"] == "completed":
            return
        if state["ended"] is not None:
            raise SystemExit(f"the run is {state['state']}: {state['reason']}")
        await asyncio.sleep(0.1)


async def _why(site: WholeSite, run: str, inputs: Inputs, change: str) -> str:
    """What `forestay why-run` says of the job that had to run, or of the one of the touched file."""
    number = inputs.many // 3 if change == "changed" else inputs.many // 2
    jobs = (await site.get(f"/v1/jobs?run={run}&limit=1000", "viewer"))["jobs"]
    job = next((job for job in jobs if job["index"] == number), jobs[0])
    why: dict[str, Any] = await site.get(f"/v1/jobs/{job['id']}/why-run", "viewer")
    if why["reused"]:
        return ""
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "…", str(why["why"])).replace(f"{inputs.folder}/", "")


def snakemake(many: int, folder: Path) -> list[Row]:
    inputs = Inputs(folder / "snakemake", many)
    words = [str(installed("snakemake", folder / "snakemake-env") / "snakemake"), "--cores", str(WORKERS), "--nocolor"]
    text = re.compile(r"^(?:local)?rule each:.*?^    reason: ([^\n]+)", re.MULTILINE | re.DOTALL)

    def write(change: str) -> None:
        (inputs.folder / "Snakefile").write_text(SNAKEFILE.format(flag=flag(change)))

    return _command("snakemake", words, inputs, write, lambda log: _shortest(text.findall(log)))


def nextflow(many: int, folder: Path) -> list[Row]:
    """It gives no reason: `-dump-hashes` writes what every task's hash was made of, which a person can compare."""
    inputs = Inputs(folder / "nextflow", many)
    words = [*nextflow_command(), "run", "main.nf", "-resume", "-ansi-log", "false"]

    def write(change: str) -> None:
        (inputs.folder / "main.nf").write_text(NEXTFLOW.format(folder=inputs.folder, flag=flag(change)))
        (inputs.folder / "nextflow.config").write_text(f"executor.cpus = {WORKERS}\nexecutor.queueSize = {WORKERS}\n")

    settings = QUIET | {"NXF_HOME": str(inputs.folder / "home")}
    return _command("nextflow", words, inputs, write, lambda _log: "", settings)


def _shortest(reasons: Sequence[str]) -> str:
    return min(reasons, key=len, default="")


def _command(
    system: str,
    words: list[str],
    inputs: Inputs,
    write: Callable[[str], None],
    reason: Callable[[str], str],
    settings: dict[str, str] | None = None,
) -> list[Row]:
    """Run a command once for each change."""
    rows = []
    for change in CHANGES:
        inputs.change(change)
        write(change)
        since = time.monotonic()
        log = inputs.folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                words, cwd=inputs.folder, stdout=out, stderr=out, env=os.environ | (settings or {})
            )
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        text = log.read_text(errors="replace")
        if process.returncode:
            raise SystemExit(f"{' '.join(words)}: {text[-2000:]}")
        cost = Cost(time.monotonic() - since, used.ru_utime + used.ru_stime, reason(text))
        rows.append(row(system, change, inputs, cost))
    return rows


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--systems", default="forestay,snakemake,nextflow")
    parser.add_argument("--store", default="postgres", choices=["postgres", "sqlite"])
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="forestay-reuse-"))
    rows: list[Row] = []
    try:
        for system in asked.systems.split(","):
            if system == "forestay":
                rows += await forestay(asked.inputs, folder, asked.store)
            else:
                work = {"snakemake": snakemake, "nextflow": nextflow}[system]
                rows += await asyncio.to_thread(work, asked.inputs, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(asked, rows)


def report(asked: argparse.Namespace, rows: list[Row]) -> None:
    figures = {"inputs": asked.inputs, "store": asked.store, "rows": [asdict(row) for row in rows]}
    print(f"raw runs in {keep('reuse_beside', [], figures | {'pressure': pressure()})}", file=sys.stderr)
    print("| system | change | jobs run | seconds | CPU-seconds | reason given |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        mark = "" if row.right else " (not those that had to)"
        print(f"| {row.system} | {row.change} | {row.ran}{mark} | {row.seconds:.1f} | {row.cpu:.1f} | {row.reason or '-'} |")  # fmt: skip
    mine = [row for row in rows if row.system == "forestay"]
    leave(reached=all(row.right for row in mine))


if __name__ == "__main__":
    asyncio.run(main())
