"""Records histories on real stores while they are being killed, and has them checked: `just linearizability`."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import servers
from tests.system.linearizability.campaign import Campaign
from tests.system.linearizability.faults import Fault, OpenSearchCluster, PostgresServer, SplitCluster
from tests.system.linearizability.spaces import joined_nodes
from tests.system.linearizability.verdict import Verdict, judge, total
from tests.system.linearizability.workers import At, OpenSearchAt, SqlAt

CLUSTER = "lin"
SPLIT, NET = "split", "10.213.78"
"""The cluster whose nodes are in network namespaces, and their network."""
FULL = 50_000
"""From so many operations on all faults are tried, and the servers are started for speed and not for a quick start."""
RESULTS = Path(__file__).resolve().parents[3] / ".run" / "linearizability"

Histories = tuple[dict[str, Path], int]


def _nodes(options: argparse.Namespace, name: str) -> bool:
    """Start three nodes; whether it is for the whole."""
    full: bool = options.operations >= FULL
    quick = () if full else ("--quick",)
    words = ("--name", name, "--nodes", "3", "--port", str(options.port), "--heap", "512m")
    servers.order("start", "opensearch", *words, *quick)
    return full


def _arms(hosts: Sequence[str], run: int, most: int) -> tuple[dict[str, str], list[tuple[str, At]]]:
    """Prefixes and ways. An arm with one replica, whose writes may be on one copy, and one with two, on two at least."""
    prefixes = {f"replicas-{copies}": f"lin{run:x}-{copies}" for copies in range(1, most + 1)}
    ways: list[tuple[str, At]] = []
    for copies, (arm, prefix) in enumerate(prefixes.items(), start=1):
        # One client for each node alone, and one that may go to any of them.
        several = (*((host,) for host in hosts), tuple(hosts))
        ways += [(arm, OpenSearchAt(some, prefix, replicas=copies, wait_for_active_shards=copies)) for some in several]
    return prefixes, ways


async def opensearch(options: argparse.Namespace) -> Histories:
    """Three nodes that are killed and paused."""
    full = _nodes(options, CLUSTER)
    hosts = tuple(f"http://127.0.0.1:{options.port + place}" for place in range(3))
    run = random.Random().getrandbits(32)
    prefixes, ways = _arms(hosts, run, 2)
    dice = random.Random(options.seed)
    cluster = OpenSearchCluster(CLUSTER, hosts, f"lin{run:x}-*-jobs*", dice)
    campaign = _campaign("opensearch", ways, options, options.operations, cluster.quiet)
    campaign.copies = lambda arm, names: cluster.copies(f"{prefixes[arm]}-jobs", names)
    holder = cluster.node_with_a_primary
    faults = [
        cluster.kill(holder, "a node with a primary"),
        cluster.pause(holder, "a node with a primary", 8 if full else 4),
        cluster.kill(cluster.manager, "the cluster manager"),
    ]
    if full:
        faults += [
            cluster.kill(holder, "a node with a primary"),
            # Long enough that the others give the node up: it comes back as a primary that is none any more.
            cluster.pause(holder, "a node with a primary", 50),
            cluster.kill(cluster.any_node, "any node"),
            cluster.kill_all(),
            cluster.kill(holder, "a node with a primary"),
        ]
    try:
        return await campaign.run(faults), campaign.kills
    finally:
        if not options.servers:
            await asyncio.to_thread(servers.order, "stop", "opensearch", "--name", CLUSTER)


async def split(options: argparse.Namespace) -> Histories:
    """Three nodes in network namespaces: one with a primary, or the manager, is cut off from the two others, again and again."""
    with joined_nodes(SPLIT, NET, options.port, 3):
        os.environ["OPENSEARCH_SPACES"] = "yes"
        try:
            full = _nodes(options, SPLIT)
            hosts = tuple(f"http://127.0.0.1:{options.port + place}" for place in range(3))
            run = random.Random().getrandbits(32)
            prefixes, ways = _arms(hosts, run, 2)
            cluster = SplitCluster(SPLIT, NET, hosts, f"lin{run:x}-*-jobs*", random.Random(options.seed))
            campaign = _campaign("split", ways, options, options.operations, cluster.quiet)
            campaign.copies = lambda arm, names: cluster.copies(f"{prefixes[arm]}-jobs", names)
            primary = cluster.split(cluster.node_with_a_primary, "a node with a primary")
            manager = cluster.split(cluster.manager, "the cluster manager")
            faults = [primary, manager] * (options.splits or (10 if full else 1))
            return await campaign.run(faults), campaign.kills
        finally:
            await asyncio.to_thread(servers.order, "stop", "opensearch", "--name", SPLIT)
            del os.environ["OPENSEARCH_SPACES"]


async def postgres(options: argparse.Namespace) -> Histories:
    """One server, killed with everything it was about to commit."""
    servers.order("start", "postgres", "--port", str(options.postgres_port), "--fresh")
    url = f"postgresql://forestay@127.0.0.1:{options.postgres_port}/forestay"
    server = PostgresServer(url, random.Random(options.seed))
    ways: list[tuple[str, At]] = [("postgres", SqlAt(url)) for _ in range(5)]
    campaign = _campaign("postgres", ways, options, max(2_000, options.operations // 5), server.quiet)
    faults = [server.kill(), server.kill_backend()]
    if options.operations >= FULL:
        faults += [server.kill(), server.kill_backend(), server.kill()]
    try:
        return await campaign.run(faults), campaign.kills
    finally:
        if not options.servers:
            await asyncio.to_thread(servers.order, "stop", "postgres")


async def sqlite(options: argparse.Namespace) -> Histories:
    """One file and several processes, which are killed themselves."""

    async def quiet() -> None:
        """Nothing runs beside the processes, and those have ended."""

    with tempfile.TemporaryDirectory(prefix="forestay-") as folder:
        ways: list[tuple[str, At]] = [("sqlite", SqlAt(f"sqlite:///{folder}/jobs.db")) for _ in range(3)]
        campaign = _campaign("sqlite", ways, options, max(2_000, options.operations // 5), quiet)
        kill = Fault("kill -9 of a process that writes", 1, campaign.kill_worker, campaign.replace_worker)
        return await campaign.run([kill] * (5 if options.operations >= FULL else 2)), campaign.kills


STORES: dict[str, Callable[[argparse.Namespace], Coroutine[Any, Any, Histories]]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "opensearch": opensearch,
    "split": split,
}


def _campaign(
    name: str,
    ways: Sequence[tuple[str, At]],
    options: argparse.Namespace,
    operations: int,
    quiet: Callable[[], Awaitable[None]],
) -> Campaign:
    arms = len(dict(ways))
    documents = max(40, operations // 500 // arms)
    return Campaign(name, ways, operations, documents, options.folder / name, options.seed, 3, quiet)


@contextmanager
def _own_servers(path: Path | None) -> Iterator[None]:
    """Servers of this run alone, in a folder that goes with them, unless a folder was given."""
    if path is not None:
        os.environ["FORESTAY_SERVERS_DIR"] = str(path)
        yield
        return
    with tempfile.TemporaryDirectory(prefix="forestay-servers-") as folder:
        Path(folder).chmod(0o755)  # started by root, they run as nobody
        os.environ["FORESTAY_SERVERS_DIR"] = folder
        try:
            yield
        finally:
            servers.order("stop")


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="just linearizability", description=__doc__)
    parser.add_argument("operations", nargs="?", type=int, default=100_000, help="on OpenSearch; a fifth on the others")
    parser.add_argument(
        "--stores",
        nargs="+",
        choices=STORES,
        default=[store for store in STORES if store != "split"],
        help="all but `split`, which takes root",
    )
    parser.add_argument("--seed", type=int, default=random.Random().getrandbits(16))
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where histories and pictures go")
    parser.add_argument("--servers", type=Path, help="the folder of servers to use and to leave running")
    parser.add_argument("--port", type=int, default=9220, help="of the first OpenSearch node")
    parser.add_argument("--splits", type=int, default=0, help="pairs of splits: of a primary, and of the manager")
    parser.add_argument("--postgres-port", type=int, default=5442)
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    options = _options(words)
    print(f"linearizability: seed {options.seed}, histories in {options.folder}", file=sys.stderr)  # noqa: T201
    verdicts: list[Verdict] = []
    kills = 0
    with _own_servers(options.servers):
        for name in options.stores:
            histories, killed = asyncio.run(STORES[name](options))
            kills += killed
            for arm, history in histories.items():
                verdict = judge(history)
                verdicts.append(verdict)
                for problem in (*verdict.violations[:20], *verdict.undecided[:20]):
                    print(problem)  # noqa: T201
                print(verdict.line(name if arm == name else f"{name}, {arm}", killed))  # noqa: T201
    everything = total(verdicts)
    print(everything.line("linearizability", kills), flush=True)  # noqa: T201
    return 0 if everything.sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
