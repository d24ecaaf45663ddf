"""Two workers of Dask's; a task is begun on one of them. With an argument that is how long the scheduler goes without hearing of a worker."""

from __future__ import annotations

import sys

import dask.config
from distributed import Client, LocalCluster

from bench.peers.answering import answer
from bench.peers.losing import begun


def main(silence: str) -> None:
    if silence:
        dask.config.set({"distributed.scheduler.worker-ttl": f"{silence}s"})
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        kept = []

        def begin(place: str) -> None:
            kept.append(client.submit(begun, place, pure=False))

        answer(begin=begin)


if __name__ == "__main__":
    main(*sys.argv[1:2] or [""])
