"""A graph of so many no-ops and one that gathers them, through Dask's distributed with so many workers of one thread."""

from __future__ import annotations

import resource
import sys
import time

import dask
from distributed import Client, LocalCluster

from bench.peers.answering import answer
from bench.peers.calls import plus


def main(workers: int) -> None:
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def graph(jobs: int) -> dict[str, float]:
            since = time.perf_counter()
            each = dask.delayed(plus, pure=False)
            whole = dask.delayed(len)([each(number) for number in range(jobs)])
            future = client.compute(whole)
            accepted = time.perf_counter() - since
            if future.result() != jobs:
                raise ValueError("not what the graph gives")
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            return {"accepted": accepted, "ended": time.perf_counter() - since, "peak": peak}

        answer(graph=graph)


if __name__ == "__main__":
    main(int(sys.argv[1]))
