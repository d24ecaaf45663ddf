"""Two managers of Parsl's HighThroughputExecutor with a worker each; a task is begun on one of them, and may be tried once more.

With an argument that is the threshold of its heartbeats, which are then sent three times as often.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

from bench.peers.answering import answer
from bench.peers.losing import begun


def main(silence: str) -> None:
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    heartbeats = {"heartbeat_threshold": int(silence), "heartbeat_period": max(1, int(silence) // 3)} if silence else {}
    htex = HighThroughputExecutor(
        label="htex",
        max_workers_per_node=1,
        address="127.0.0.1",
        encrypted=False,
        provider=LocalProvider(init_blocks=2, min_blocks=2, max_blocks=2),
        **heartbeats,
    )
    with tempfile.TemporaryDirectory() as folder, parsl.load(Config([htex], run_dir=folder, retries=1)):
        app = parsl.python_app(begun)
        kept = []

        def begin(place: str) -> None:
            kept.append(app(place))

        def ready() -> int:
            return len(htex.connected_managers())

        answer(begin=begin, ready=ready)
        os._exit(0)  # what is lost is not waited for


if __name__ == "__main__":
    main(*sys.argv[1:2] or [""])
