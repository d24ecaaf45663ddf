"""Calls through Celery with so many worker processes, on a Redis of its own that writes nothing to its disk.

`python -m bench.peers.celery_calls WORKERS` starts Redis and Celery's worker, which imports this module for its tasks.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time

from celery import Celery
from celery.result import ResultSet

from bench.peers import calls
from bench.peers.answering import answer, timed

PLACE = os.environ.get("FORESTAY_BENCH_REDIS", "redis://127.0.0.1:1/0")
app = Celery("bench", broker=PLACE, backend=PLACE)
app.conf.worker_hijack_root_logger = False
plus = app.task(name="plus")(calls.plus)
nap = app.task(name="nap")(calls.nap)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def main(workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        redis = subprocess.Popen([*words, "--dir", folder], stdout=sys.stderr)
        os.environ["FORESTAY_BENCH_REDIS"] = place = f"redis://127.0.0.1:{port}/0"
        app.conf.broker_url = app.conf.result_backend = place
        words = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "bench.peers.celery_calls",
            "worker",
            "--concurrency",
            str(workers),
        ]
        worker = subprocess.Popen([*words, "--loglevel", "WARNING"], stdout=sys.stderr)
        try:
            _until_it_answers()

            def mapped(many: int, seconds: float) -> float:
                def work() -> None:
                    waiting = ResultSet([nap.delay(seconds) if seconds else plus.delay(n) for n in range(many)])
                    calls.check(waiting.join_native(), many, seconds)

                return timed(work)

            answer(map=mapped)
        finally:
            worker.terminate()
            worker.wait(30)
            redis.terminate()
            redis.wait(30)


def _until_it_answers() -> None:
    for _ in range(120):
        try:
            if plus.delay(1).get(timeout=5) == 2:
                return
        except Exception as error:
            print(f"not yet: {error}", file=sys.stderr)
            time.sleep(0.5)
    raise SystemExit("Celery's worker does not answer")


if __name__ == "__main__":
    main(int(sys.argv[1]))
