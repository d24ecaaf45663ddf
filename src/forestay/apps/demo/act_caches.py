"""Paper P3: a data-driven flow on pilots with caches, on three hosts, over a storage that is slow and fails."""

from __future__ import annotations

from collections import Counter

from forestay.apps.demo.act import Act, ActResult, DemoStage
from forestay.apps.demo.site import HOSTS
from forestay.apps.demo.storage import DELAY
from forestay.client.api.calls import Call, document

SIZE = 256 * 1024
SHARED = ("conditions.dat", "geometry.dat")
FROM_CACHES = ("cache", "neighbour", "peer")


async def play(stage: DemoStage, result: ActResult) -> None:
    near = stage.site.near
    for name in SHARED:
        (near.folder / name).write_bytes(name.encode() * (SIZE // len(name)))
    run = await stage.start_run("tier0")
    await stage.ended(run)
    jobs = await stage.jobs(run=run)
    hosts = Counter(str((job["last"] or {}).get("host")) for job in jobs)
    caches = await stage.client.send(Call("GET", "/v1/fleet/caches", document))
    ways: dict[str, int] = caches["inputs"]
    cached = sum(ways[way] for way in FROM_CACHES)
    staged = sum(int((job["last"] or {}).get("input_bytes") or 0) for job in jobs)
    result.runs.append(run)
    result.figure("jobs completed", len(jobs), "the jobs of the run")
    for host in HOSTS:
        result.figure(f"of them on host {host}", hosts[host], "their last attempts")
    result.figure("attempts that failed", sum(job["failures"] for job in jobs), "the jobs of the run")
    result.figure("bytes of inputs staged", staged, "their last attempts")
    for way, name in (
        ("cache", "from the pilot's own cache"),
        ("peer", "from the cache of another host"),
        ("element", "from storage or from the folder of outputs"),
    ):
        result.figure(f"inputs {name}", ways[way], "the server's count of what pilots reported")
    result.figure("requests to the slow storage", near.requests, f"the storage, {DELAY} s each")
    result.figure("of them failed", near.failed, "the storage")
    result.figure("bytes sent by the slow storage", near.bytes_sent, "the storage")
    result.summary = (
        f"{len(jobs)} jobs on {len(hosts)} hosts, {cached} of {sum(ways.values())} inputs from caches; "
        f"{near.failed} of {near.requests} requests to the storage failed, {sum(job['state'] != 'completed' for job in jobs)} jobs"
    )
    stage.expect(all(job["state"] == "completed" for job in jobs), "a job did not complete")
    stage.expect(set(hosts) == set(HOSTS), f"jobs ran on {sorted(hosts)} only")
    stage.expect(cached, "no input came from a cache")
    stage.expect(near.failed, "the storage did not fail")


ACT = Act(
    "P3",
    "Pilots with data caches",
    "Pilots pull jobs, keep the files that jobs read and made, and get jobs whose files they have. A storage that is slow and fails is asked once, not once for every job.",
    play,
)
