"""Calls through Dask's distributed at its defaults, with so many workers of one thread."""

from __future__ import annotations

import sys

from distributed import Client, LocalCluster

from bench.peers.answering import answer, timed
from bench.peers.calls import check, nap, plus


def main(workers: int) -> None:
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def mapped(calls: int, seconds: float) -> float:
            def work() -> None:
                given_range = [seconds] * calls if seconds else range(calls)
                check(client.gather(client.map(nap if seconds else plus, given_range, pure=False)), calls, seconds)

            return timed(work)

        answer(map=mapped)


if __name__ == "__main__":
    main(int(sys.argv[1]))
