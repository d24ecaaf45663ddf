"""`python -m tests.system.chaos small|full|release`: runs a campaign, audits it, prints the figures last; 1 when one of them is wrong.

A whole campaign leaves its figures in bench/results. `python -m tests.system.chaos.kept_report FOLDER` does the same for one that ran earlier.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

from bench.harness import command, commit
from tests.system.chaos.audit import Audit, Verdict
from tests.system.chaos.campaign import Campaign
from tests.system.chaos.evidence import gather
from tests.system.chaos.kept_report import keep_report
from tests.system.chaos.site import Site, say
from tests.system.chaos.sizes import SIZES, Size


def leave(site: Site, fields: dict[str, list[tuple[str, int]]]) -> None:
    """Write what the auditor needs beside what is in the folder already, read past Forestay."""
    for kind in ("records", "jobs"):
        with (site.folder / f"{kind}.jsonl").open("w") as lines:
            for document in site.store.everything(kind):
                lines.write(json.dumps(document) + "\n")
    (site.folder / "asked.json").write_text(json.dumps({"told": fields, "misuse": site.submitter.wrong}) + "\n")


def last_line(size: Size, verdict: Verdict) -> str:
    """The figures in one line."""
    unnoticed = len(verdict.unnoticed) + len(verdict.unpublished) + len(verdict.key_duplicates)
    recorded = "all recorded" if not verdict.unrecorded else f"{len(verdict.unrecorded)} NOT recorded"
    killed = len(verdict.killed) + len(verdict.killed_in_outage)
    deaths, silences = "not measured", "not measured"
    if verdict.deaths:
        deaths = f"p50 {median(verdict.deaths):.2f} s max {max(verdict.deaths):.2f} s (n={len(verdict.deaths)})"
    if verdict.silences:
        silences = f"max {max(verdict.silences):.2f} L (n={len(verdict.silences)})"
    return (
        f"chaos {size.name}: {verdict.jobs} jobs, {len(verdict.lost) + len(verdict.unfinished)} lost, "
        f"{unnoticed} unnoticed duplicates, {verdict.extra_attempts} extra attempts {recorded}, "
        f"{killed} payloads killed by the outage, {len(verdict.false_orphans)} false orphans; "
        f"death→claimable {deaths}, silence→claimable {silences}"
    )


async def run(size: Size, seed: int, folder: Path) -> Verdict:
    site = Site(size, seed, folder)
    began = time.monotonic()
    try:
        await site.start()
        say(f"everything runs after {time.monotonic() - began:.0f} s; seed {seed}, folder {folder}")
        campaign = Campaign(site)
        await campaign.run()
        stories = await site.stories()
        await site.end()
        say("auditing")
        await asyncio.to_thread(leave, site, stories)
    finally:
        site.abandon()
        await site.store.stop()
    verdict = Audit(gather(folder), size.lease).judge()
    complaints = verdict.complaints(death_limit=size.death_limit, silence_limit=size.silence_limit)
    report = {
        "size": asdict(size),
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        "complaints": complaints,
        "verdict": asdict(verdict),
        "submitter": dict(site.submitter.tally),
        "storms let through": site.let_through,
        "suspects let through": site.suspects,
        "faults": _counted(site),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": command(),
        "commit": commit(),
        "load": round(campaign.load, 1),
    }
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    for complaint in complaints:
        say(f"WRONG: {complaint}")
    say(
        f"{verdict.starts} starts; {verdict.through_outage} payloads ran through an outage; "
        f"late ends: {verdict.adopted} adopted, {verdict.superseded} kept as evidence"
    )
    say(f"releases: {verdict.releases}")
    say(f"faults: {report['faults']}")
    say(f"{time.monotonic() - began:.0f} s in all; the report is {folder / 'report.json'}")
    return verdict


def _counted(site: Site) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for fault in site.faults.faults:
        counts[f"{fault.kind} {fault.what}"] += 1
    gate = site.folder / "gate.jsonl"
    for text in gate.read_text().splitlines() if gate.exists() else ():
        line = json.loads(text)
        counts[f"{line['what']} {'answer to ' if line['what'] == 'lost' else ''}{line['way'].partition('-')[0]}"] += 1
    return dict(sorted(counts.items()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("size", nargs="?", default="small", choices=sorted(SIZES))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--folder", type=Path, help="where logs, ledger and report are kept; a new one unless given")
    parser.add_argument("--acts", help="only these, with commas; for looking into something")
    arguments = parser.parse_args()
    size = SIZES[arguments.size]
    if arguments.acts:
        wanted = arguments.acts.split(",")
        size = replace(size, acts=tuple(act for act in size.acts if act.name in wanted))
    folder: Path = arguments.folder or Path(tempfile.mkdtemp(prefix="forestay-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    verdict = asyncio.run(run(size, arguments.seed, folder.resolve()))
    if not arguments.acts:
        say(f"the figures are in {keep_report(folder)}")
    bad = verdict.complaints(death_limit=size.death_limit, silence_limit=size.silence_limit)
    if not bad and arguments.folder is None:
        shutil.rmtree(folder / "outputs", ignore_errors=True)
        shutil.rmtree(folder / "work", ignore_errors=True)
    sys.stdout.write(last_line(size, verdict) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
