"""Paper P0: fault-tolerant patterns: a corrupt replica is re-staged from another one, a job that needs more is re-submitted changed, and what another domain had is run here when that domain is away."""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from forestay.apps.demo.act import PATIENCE, Act, ActResult, DemoStage
from forestay.apps.demo.domain import DemoDomain
from forestay.apps.demo.site import NEIGHBOUR, NEIGHBOURS_HOST, NEIGHBOURS_SLOTS
from forestay.apps.demo.state_diagram import state_diagram
from forestay.client import AsyncForestayClient, Patience
from forestay.client.api import calls, file_calls, peer_calls, rule_calls
from forestay.client.api.schemas import Job

LFN = "lfn:/demo/run.dat"
GOOD = b"events of run 7\n" * 4096
NIGHTS = 16
PEER_LEASE = 10
"""Seconds for which another domain may be silent before its work is moved; the least that is allowed."""
MORE_MEMORY = {
    "name": "more-memory",
    "type": "abort",
    "condition": 'cause == "memory" && job.attempt < 4',
    "conclusion": {
        "steps": [{"action": "resubmit", "how": "changed", "needs": {"memory": {"factor": 4, "at_most": 2 << 30}}}]
    },
    "context": {"cause": "memory", "job": {"attempt": 1}},
    "description": "Four times the memory, at most 2 GiB.",
}


@dataclass(frozen=True, slots=True)
class NightStart:
    """A line that the job of a sub-flow wrote when it was started."""

    night: int
    folder: Path

    def within(self, domain: DemoDomain) -> bool:
        return self.folder.is_relative_to(domain.folder)


async def play(stage: DemoStage, result: ActResult) -> None:
    async with stage.site.neighbour() as neighbour:
        digest = await _prepare(stage)
        await _introduce(stage, neighbour)
        starts = stage.site.folder / "nights"
        starts.touch()
        run = await stage.start_run("patterns", digest=digest, python=sys.executable, starts=str(starts))
        result.runs.append(run)

        async def begun() -> bool:
            return any(start.within(neighbour) for start in _starts(starts))

        await stage.until(begun, "a sub-flow that begins in the neighbouring domain")
        killed, lost = time.monotonic(), await neighbour.kill()
        await stage.ended(run)
        away = time.monotonic() - killed
    await _judge_files(stage, result, run)
    await _judge_nights(stage, result, neighbour, _starts(starts))
    result.figure("processes of the other domain killed", lost, "the demonstration")
    result.figure("seconds until its sub-flows had completed here", round(away, 1), "the demonstration's clock")
    jobs = [job for job in await stage.jobs() if job["name"] in ("read-run", "fit-model", "night")]
    result.diagram = state_diagram([await stage.story(job) for job in jobs])


async def _prepare(stage: DemoStage) -> str:
    """A file with a good and a corrupt replica, and the rule about memory; the digest of the good one."""
    digest = hashlib.sha256(GOOD).hexdigest()
    (stage.site.near.folder / "run.dat").write_bytes(GOOD.replace(b"7", b"8", 1))
    (stage.site.far / "run.dat").write_bytes(GOOD)
    await stage.client.send(file_calls.add_replica(LFN, "far", path="run.dat", size=len(GOOD), sha256=digest))
    applied = await stage.client.send(rule_calls.apply_rules("domain/site", {"rules": [MORE_MEMORY]}))
    await stage.client.send(rule_calls.set_rule_state("domain/site", applied["rules"][0]["rule"], "active"))
    return digest


async def _introduce(stage: DemoStage, neighbour: DemoDomain) -> None:
    """Register the domains with each other, and wait until sub-flows may go there."""
    token = neighbour.token("demo", "administrator")
    async with AsyncForestayClient(neighbour.url, token, patience=Patience(seconds=PATIENCE)) as other:
        theirs, ours = (
            (await other.send(peer_calls.peers()))["key"],
            (await stage.client.send(peer_calls.peers()))["key"],
        )
        own = {"url": stage.site.url, "key": ours, "tenants": {"default": "default"}, "lease": PEER_LEASE}
        await other.send(peer_calls.put_peer("north", own))
    known = {"url": neighbour.url, "key": theirs, "sends": ["default"], "lease": PEER_LEASE}
    await stage.client.send(peer_calls.put_peer(NEIGHBOUR, known))
    await neighbour.start_pilot(NEIGHBOURS_HOST, NEIGHBOURS_SLOTS)

    async def offers() -> bool:
        peers = (await stage.client.send(peer_calls.peers()))["peers"]
        return any(peer["connected"] and peer["slots"] for peer in peers)

    await stage.until(offers, "the neighbouring domain to offer its slots")


def _starts(starts: Path) -> list[NightStart]:
    lines = [line.split(" ", 1) for line in starts.read_text(encoding="utf-8").splitlines()]
    return [NightStart(int(night), Path(folder)) for night, folder in lines]


async def _judge_files(stage: DemoStage, result: ActResult, run: str) -> None:
    jobs = {job["name"]: job for job in await stage.jobs(run=run)}
    read, fit = jobs["read-run"], jobs["fit-model"]
    tried = await _tried(stage, read)

    async def marked() -> dict[str, bool] | None:
        where = await stage.client.send(file_calls.where(LFN))
        bad = {replica["element"]: replica["bad"] for replica in where["replicas"]}
        return bad if bad.get("near") else None

    bad = await stage.until(marked, "the mark on the corrupt replica")
    specification = await stage.client.send(calls.specification(fit["id"]))
    memory = int(specification["resources"]["memory"])
    incidents = await stage.incidents(job=fit["id"])
    causes = [incident["cause"] for incident in incidents]
    result.figure("replicas of the file", len(bad), "the catalogue")
    result.figure("of them marked as bad", sum(bad.values()), "the catalogue")
    result.figure("attempts of the job that read it", read["attempt"], "the job")
    result.figure("sources refused in that attempt", len(tried), "the evidence in its story")
    result.figure("cause of the other job's failure", ", ".join(causes), "its incidents")
    result.figure("bytes of memory at first", memory, "its specification")
    result.figure("bytes of memory at last", fit["resources"]["memory"], "the job")
    result.figure("attempts of that job", fit["attempt"], "the job")
    result.summary = (
        f"corrupt replica: re-staged from the other one in attempt {read['attempt']}; out of memory: "
        f"re-submitted with {fit['resources']['memory'] >> 20} MiB instead of {memory >> 20}"
    )
    stage.expect(bad == {"near": True, "far": False}, f"replicas are marked {bad}")
    stage.expect(causes and set(causes) == {"memory"}, f"the causes are {causes}")
    stage.expect(fit["resources"]["memory"] > memory, "the job did not get more memory")
    # An attempt that was lost with its pilot, as on a machine that is too busy, is no failure of the job.
    stage.expect(fit["failures"] == len(incidents), "the job was not re-submitted once for each failure")


async def _judge_nights(stage: DemoStage, result: ActResult, neighbour: DemoDomain, starts: list[NightStart]) -> None:
    there = {start.night for start in starts if start.within(neighbour)}
    here = Counter(start.night for start in starts if not start.within(neighbour))
    completed = [job for job in await stage.jobs(state="completed") if job["name"] == "night"]
    moved = there & set(here)
    result.figure("sub-flows", len(there | set(here)), "a file that their jobs append to")
    result.figure("of them begun in the other domain", len(there), "that file")
    result.figure("of those run again here when it was lost", len(moved), "that file")
    result.figure("jobs of sub-flows completed here", len(completed), "the jobs")
    result.summary += f"; a domain was lost: {len(moved)} sub-flows that it had begun ran here"
    stage.expect(
        there | set(here) == set(range(NIGHTS)), f"sub-flows {sorted(set(range(NIGHTS)) - there - set(here))} never ran"
    )
    stage.expect(moved, "the other domain was lost too late, so nothing is shown")
    stage.expect(len(completed) == len(here), "a sub-flow was completed twice here")


async def _tried(stage: DemoStage, job: Job) -> list[str]:
    """What went wrong with the sources of a job's inputs."""
    evidence = (await stage.client.story(job["id"]))["evidence"]
    return [failed for record in evidence for entry in record.get("staging", ()) for failed in entry.get("failed", ())]


ACT = Act(
    "P0",
    "Fault-tolerant patterns",
    "What is done about a failure fits its cause: a file that arrives damaged is staged from another replica, a job that needs more is submitted again with more, and what was sent to another domain runs elsewhere when that domain is lost. Neither the flow nor its author knows of it.",
    play,
)
