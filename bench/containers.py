"""What a container costs a job: the command `true`, bare and in an image by each runtime that is here, in turns.

    just containers-cost
    just bench containers --rounds 5 --jobs 10

Every arm starts the payload as a pilot does, by a guard of its own, and has its image on the host already. CPU time is that of the guard and everything below it, waited for or
left to it; the wall time is from the order to the guard until the end that it tells. Arms are taken in another order each round. Images need skopeo's or a site's runtime set-up: see `just containers`.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.unit.pilot.containers.images import LayoutFolder, layer_of, unpacked

from bench.harness import keep
from forestay_pilot.containers.image_reference import APPTAINER, BUBBLEWRAP, PODMAN
from forestay_pilot.containers.image_store import ImageStore, StagedImage
from forestay_pilot.containers.runtimes import ContainerRuntimes, find_bubblewrap, find_program
from forestay_pilot.process.guard_link import GuardLink
from forestay_pilot.process.payload import Surroundings, make_payload, read_claim

BARE = "bare"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=10, help="jobs of an arm in a round, one after the other")
    parser.add_argument("--seed", type=int, default=29)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forestay-containers-") as name:
        folder = Path(name)
        arms = images_of(folder)
        figures: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
        order = random.Random(asked.seed)
        for number in range(asked.rounds):
            for arm in order.sample(sorted(arms), len(arms)):
                work = folder / f"{arm}-{number}"
                work.mkdir()
                figures[arm].append(measured(work, arms[arm], asked.jobs))
        for image in arms.values():
            if image is not None:
                image.release()
    facts: dict[str, object] = {}
    bare = tuple(statistics.median(values) for values in zip(*figures[BARE], strict=True))
    print(f"{asked.rounds} rounds of {asked.jobs} jobs an arm; medians a job, and the difference to a bare job")
    for arm, values in figures.items():
        cpu, wall = (statistics.median(column) for column in zip(*values, strict=True))
        least, most = min(value for value, _ in values), max(value for value, _ in values)
        print(
            f"{arm:12} CPU {1000 * cpu:7.1f} ms (rounds {1000 * least:.1f} to {1000 * most:.1f}), wall {1000 * wall:7.1f} ms; "
            f"{1000 * (cpu - bare[0]):+7.1f} ms of CPU, {1000 * (wall - bare[1]):+7.1f} ms"
        )
        facts[arm] = values
    print(f"raw figures in {keep('containers', [], facts)}", file=sys.stderr)


def images_of(folder: Path) -> dict[str, StagedImage | None]:
    """The image of each arm, on this host already."""
    layout = LayoutFolder(folder / "layout")
    layout.image("v1", [layer_of(unpacked(folder / "image"))])
    name = f"oci:{layout.folder}:v1"
    programs = {
        BUBBLEWRAP: find_bubblewrap("bwrap"),
        PODMAN: find_program("podman"),
        APPTAINER: find_program(os.environ.get("FORESTAY_TEST_APPTAINER", "apptainer")),
    }
    arms: dict[str, StagedImage | None] = {BARE: None}
    for runtime, program in programs.items():
        if program:
            runtimes = ContainerRuntimes(images=str(folder / runtime), **{runtime: program})  # type: ignore[arg-type]
            arms[runtime] = ImageStore(runtimes).obtain(name, lambda: False)
        else:
            print(f"there is no {runtime}: its arm is missing", file=sys.stderr)
    return arms


def measured(work: Path, image: StagedImage | None, jobs: int) -> tuple[float, float]:
    """Seconds of CPU and of wall time a job."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    guard = GuardLink(lambda: None)
    wall = 0.0
    for number in range(jobs):
        claim = f"{work.name}-{number}"
        folder = work / claim
        folder.mkdir()
        document = {"job": claim, "generation": 0, "attempt": 1, "claim": claim, "specification": {"command": ["true"]}}
        payload = make_payload(read_claim(document), str(folder), str(work / "log"), Surroundings(), image)
        begun = time.monotonic()
        outcome = guard.run(payload, stop_why=lambda: "")
        wall += time.monotonic() - begun
        if outcome.exit_code != 0:
            raise SystemExit(f"{work.name}: {outcome}")
    guard.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent / jobs, wall / jobs


if __name__ == "__main__":
    main()
