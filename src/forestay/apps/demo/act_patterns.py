"""Paper P0: fault-tolerant patterns: a corrupt replica is re-staged from another one, a job that needs more is re-submitted changed."""

from __future__ import annotations

import hashlib
import sys

from forestay.apps.demo.act import Act, ActResult, DemoStage
from forestay.client.api import calls, file_calls, rule_calls
from forestay.client.api.schemas import Job

LFN = "lfn:/demo/run.dat"
GOOD = b"events of run 7\n" * 4096
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


async def play(stage: DemoStage, result: ActResult) -> None:
    digest = hashlib.sha256(GOOD).hexdigest()
    (stage.site.near.folder / "run.dat").write_bytes(GOOD.replace(b"7", b"8", 1))
    (stage.site.far / "run.dat").write_bytes(GOOD)
    add = file_calls.add_replica(LFN, "far", path="run.dat", size=len(GOOD), sha256=digest)
    await stage.client.send(add)
    applied = await stage.client.send(rule_calls.apply_rules("domain/site", {"rules": [MORE_MEMORY]}))
    rule = applied["rules"][0]["rule"]
    await stage.client.send(rule_calls.set_rule_state("domain/site", rule, "active"))
    run = await stage.start_run("patterns", digest=digest, python=sys.executable)
    await stage.ended(run)
    jobs = {job["name"]: job for job in await stage.jobs(run=run)}
    read, fit = jobs["read"], jobs["fit"]
    tried = await _tried(stage, read)
    result.runs.append(run)

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


async def _tried(stage: DemoStage, job: Job) -> list[str]:
    """What went wrong with the sources of a job's inputs."""
    evidence = (await stage.client.story(job["id"]))["evidence"]
    return [failed for record in evidence for entry in record.get("staging", ()) for failed in entry.get("failed", ())]


ACT = Act(
    "P0",
    "Fault-tolerant patterns",
    "What is done about a failure fits its cause: a file that arrives damaged is staged from another replica, a job that needs more is submitted again with more. Neither the flow nor its author knows of it.",
    play,
)
