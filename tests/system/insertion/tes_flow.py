"""The steps of the Snakefile as a client of TES runs them: by py-tes alone, which knows nothing of Forestay. Run as a program: server, folder."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import tes

T = TypeVar("T")
GIB = 1 << 30
NEEDS = tes.Resources(cpu_cores=1, ram_gb=400_000_000 / GIB, disk_gb=0.1)


def patiently(call: Callable[[], T], seconds: float = 300) -> T:
    """py-tes raises when a server does not answer; its users ask again."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            return call()
        except Exception as error:
            if time.monotonic() > give_up:
                raise
            print(f"no answer: {error}", flush=True)  # noqa: T201 - its log
            time.sleep(1)


def part(folder: Path, n: int) -> tes.Task:
    made = f"/made/part{n}.txt"
    return tes.Task(
        name="part",
        resources=NEEDS,
        outputs=[tes.Output(url=f"file://{folder}/out/part{n}.txt", path=made)],
        executors=[tes.Executor(image="alpine", command=["/bin/sh", "-c", f"{folder}/bin/measure {n} > {made}"])],
    )


def merge(folder: Path, parts: list[int]) -> tes.Task:
    return tes.Task(
        name="merge",
        resources=NEEDS,
        inputs=[tes.Input(url=f"file://{folder}/out/part{n}.txt", path=f"/in/part{n}.txt") for n in parts],
        outputs=[tes.Output(url=f"file://{folder}/out/merged.txt", path="/made/merged.txt")],
        executors=[tes.Executor(image="alpine", command=["/bin/sh", "-c", "cat /in/part*.txt > /made/merged.txt"])],
    )


def main(server: str, folder: Path) -> int:
    client = tes.HTTPClient(server, timeout=10, token=os.environ["TES_TOKEN"])

    def done(names: list[str]) -> bool:
        states = {name: patiently(lambda name=name: client.wait(name)).state for name in names}  # type: ignore[misc]
        print(states, flush=True)  # noqa: T201 - its log
        return set(states.values()) == {"COMPLETE"}

    parts = [patiently(lambda n=n: client.create_task(part(folder, n))) for n in (1, 2)]  # type: ignore[misc]
    if not done(parts):
        return 1
    return 0 if done([patiently(lambda: client.create_task(merge(folder, [1, 2])))]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
