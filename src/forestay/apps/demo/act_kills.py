"""Paper P4: processes are killed with kill -9 during work, and the documents tell that nothing was lost and nothing was published twice."""

from __future__ import annotations

import time

from forestay.apps.demo.act import Act, ActResult, DemoStage, NotAsPromisedError
from forestay.apps.demo.site import SLOTS
from forestay.client.api.schemas import Job, RunDetails, TransitionJson

COMMITS = frozenset({"complete", "adopt"})
ENDINGS = frozenset({"failure", "release", "quarantine"})
"""Events by which a story says what became of an attempt that was not the last."""
VICTIM = "brio"


async def play(stage: DemoStage, result: ActResult) -> None:
    starts = stage.site.folder / "starts"
    run = await stage.start_run("kills", starts=str(starts))
    server = stage.site.processes["server"]
    pilot = stage.site.processes[f"pilot-{VICTIM}"]
    await stage.until(lambda: _completed(stage, run, 6), "the first jobs")
    began = time.monotonic()
    killed = [await server.kill()]
    await server.start()
    await stage.client.status()
    away = time.monotonic() - began
    await stage.until(lambda: _working(stage, run), f"the pilot on {VICTIM} to work")
    killed.append(await pilot.kill())
    await stage.site.start_pilot(VICTIM, SLOTS)
    details = await stage.ended(run)
    result.figure("processes killed with kill -9", len(killed), "the demonstration, by process id")
    result.figure("seconds without a server", round(away, 1), "the demonstration's clock")
    await _judge(stage, result, details, starts.read_text().splitlines())


async def _judge(stage: DemoStage, result: ActResult, details: RunDetails, starts: list[str]) -> None:
    jobs = await stage.jobs(run=details["id"])
    stories = {job["id"]: await stage.story(job) for job in jobs}
    accepted = sum(task["count"] for task in details["tasks"])
    lost = accepted - sum(job["state"] == "completed" for job in jobs)
    twice = sum(sum(line["event"] in COMMITS for line in story) != 1 for story in stories.values())
    extra = sum(job["attempt"] - 1 for job in jobs)
    recorded = sum(_recorded(job, stories[job["id"]]) for job in jobs)
    known = {f"{job['id']} {attempt}" for job in jobs for attempt in range(1, job["attempt"] + 1)}
    result.runs.append(details["id"])
    result.figure("jobs accepted", accepted, "the tasks of the run")
    result.figure("lost", lost, "the jobs of the run")
    result.figure("published twice", twice, "the commits in the stories of the jobs")
    result.figure("extra attempts", extra, "the jobs of the run")
    result.figure("of them recorded with their reason", recorded, "the stories of the jobs")
    result.figure("starts of payloads", len(starts), "a file that the payloads append to")
    result.figure("of them unknown to the documents", len(set(starts) - known), "that file and the jobs")
    result.summary = f"{lost} lost, {twice} twice, {extra} extra attempts, {recorded} of them recorded"
    stage.expect(lost == 0, f"{lost} jobs were lost")
    stage.expect(twice == 0, f"{twice} jobs were published twice or never")
    stage.expect(extra > 0, "the kill cost no attempt, so nothing is shown")
    stage.expect(recorded == extra, f"{extra - recorded} extra attempts are not recorded")
    stage.expect(set(starts) <= known, "a payload was started that no document knows")
    stage.expect(len(starts) == len(set(starts)), "an attempt was started twice")


def _recorded(job: Job, story: list[TransitionJson]) -> int:
    """How many of the attempts before the last have an end with a reason in the story."""
    closed = {line["attempt"] for line in story if line["event"] in ENDINGS and line["note"]}
    return sum(attempt in closed for attempt in range(1, job["attempt"]))


async def _completed(stage: DemoStage, run: str, least: int) -> bool:
    return len(await stage.jobs(run=run, state="completed")) >= least


async def _working(stage: DemoStage, run: str) -> bool:
    """Whether a job of the run runs where the pilot is killed next."""
    if not await stage.jobs(run=run, state=["available", "running"]):
        raise NotAsPromisedError("the jobs ended before the pilot could be killed")
    return any(job["claim"] and job["claim"]["host"] == VICTIM for job in await stage.jobs(run=run, state="running"))


ACT = Act(
    "P4",
    "Claims by version-checked writes",
    "A job is one document; whoever claims, completes or releases it writes with the version that was read. Any process may be killed at any moment: no job is lost, no output is published twice, and every extra attempt is recorded.",
    play,
)
