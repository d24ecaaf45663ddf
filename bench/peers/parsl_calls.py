"""Calls through Parsl's HighThroughputExecutor at its defaults, with so many workers."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

from bench.peers.answering import answer, timed
from bench.peers.calls import check, nap, plus


def main(workers: int) -> None:
    # Its own programs are found by PATH.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    htex = HighThroughputExecutor(
        label="htex",
        max_workers_per_node=workers,
        address="127.0.0.1",
        encrypted=False,
        provider=LocalProvider(init_blocks=1, max_blocks=1),
    )
    with tempfile.TemporaryDirectory() as folder, parsl.load(Config([htex], run_dir=folder)):
        short, long = parsl.python_app(plus), parsl.python_app(nap)

        def mapped(calls: int, seconds: float) -> float:
            def work() -> None:
                waiting = [long(seconds) if seconds else short(number) for number in range(calls)]
                check((entry.result() for entry in waiting), calls, seconds)

            return timed(work)

        answer(map=mapped)


if __name__ == "__main__":
    main(int(sys.argv[1]))
