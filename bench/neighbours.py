"""What one caller costs another: the time of a caller's requests alone and beside a caller that sends the worst it may, in turn.

    just bench neighbours --rounds 5

One server on SQLite, as a process. Ada asks for the status and submits one job, in turn, at a steady pace. Beside her Eve, of another tenant, sends without a
pause, from a process of her own: bodies of a megabyte of empty lists; bodies of 10,000 jobs; 1,500 requests for event streams, which she keeps open. The
goal is that Ada's 99th percentile is at most 1.5 times what it is alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import aiohttp

from bench.harness import keep
from forestay.apps.config.settings import Settings
from forestay.apps.operations.tokens import make_token

GOAL = 1.5
JSON = {"Content-Type": "application/json"}
LISTS = '{"jobs": [{"specification": {"command": ["x"]}, "parameters": {"a": [' + ",".join(["[]"] * 330_000) + "]}}]}"
SMALL_LISTS = (
    '{"jobs": [{"specification": {"command": ["x"]}, "parameters": {"a": [' + ",".join(["[]"] * 20_000) + "]}}]}"
)
ONE = json.dumps({"specification": {"command": ["true"]}, "jobs": [{"hold": True}]})


def _many() -> str:
    jobs = [{"hold": True, "index": place, "parameters": {"a": "x" * 50}} for place in range(10_000)]
    return json.dumps({"specification": {"command": ["true"]}, "jobs": jobs})


async def _post_forever(url: str, token: str, body: str) -> None:
    headers = JSON | {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def one_by_one() -> None:
            while True:
                async with session.post(f"{url}/v1/jobs", data=body) as answer:
                    await answer.read()

        await asyncio.gather(*(one_by_one() for _ in range(4)))


async def _stream_forever(url: str, token: str, _body: str) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=aiohttp.ClientTimeout()) as session:

        async def stream() -> None:
            while True:
                with suppress(aiohttp.ClientError):
                    async with session.get(f"{url}/v1/events") as answer:
                        async for _ in answer.content:
                            pass
                await asyncio.sleep(1)

        await asyncio.gather(*(stream() for _ in range(1500)))


def _eve(arm: str, url: str, token: str) -> None:
    bodies = {"lists": LISTS, "small lists": SMALL_LISTS, "jobs": _many(), "streams": ""}
    asyncio.run((_stream_forever if arm == "streams" else _post_forever)(url, token, bodies[arm]))


async def _ada(session: aiohttp.ClientSession, url: str, seconds: float, pace: float) -> list[float]:
    """Milliseconds of each request."""
    took = []
    end = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < end:
        began = time.monotonic()
        turn += 1
        asked = session.get(f"{url}/v1/status") if turn % 2 else session.post(f"{url}/v1/jobs", data=ONE, headers=JSON)
        async with asked as answer:
            await answer.read()
            if answer.status >= 300:
                raise SystemExit(f"{answer.status}: {await answer.text()}")
        took.append(1000 * (time.monotonic() - began))
        await asyncio.sleep(max(0.0, began + pace - time.monotonic()))
    return took


def _percentile(values: list[float], of: float) -> float:
    return sorted(values)[min(int(len(values) * of), len(values) - 1)]


async def measure(options: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        state = Path(folder)
        settings = Settings.model_validate({"store": f"sqlite:///{state}/store.db", "state": state, "port": port})
        environment = os.environ | {"FORESTAY_STORE": f"sqlite:///{state}/store.db", "FORESTAY_STATE": folder}
        server = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs yet
            [sys.executable, "-m", "forestay", "server", "--port", str(port)],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        url = f"http://127.0.0.1:{port}"
        arms = options.arms.split(",")
        times: dict[str, list[list[float]]] = {arm: [] for arm in ["alone", *arms]}
        try:
            ada = make_token(settings, subject="ada", tenant="a", roles=("submitter", "viewer"), seconds=7200)
            eve = make_token(settings, subject="eve", tenant="e", roles=("submitter", "viewer"), seconds=7200)
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {ada}"}) as session:
                for _ in range(600):
                    with suppress(aiohttp.ClientError):
                        await _ada(session, url, 0.2, options.pace)
                        break
                    await asyncio.sleep(0.1)
                for _ in range(options.rounds):
                    for arm in arms:
                        times["alone"].append(await _ada(session, url, options.seconds, options.pace))
                        beside = multiprocessing.get_context("spawn").Process(target=_eve, args=(arm, url, eve))
                        beside.start()
                        await asyncio.sleep(3)  # Eve's process starts
                        times[arm].append(await _ada(session, url, options.seconds, options.pace))
                        beside.kill()
                        beside.join()
                        await asyncio.sleep(1)
        finally:
            server.terminate()
            server.wait()
    result: dict[str, object] = {}
    alone = [value for values in times["alone"] for value in values]
    for arm, rounds in times.items():
        values = [value for one_round in rounds for value in one_round]
        p99 = _percentile(values, 0.99)
        ratio = p99 / _percentile(alone, 0.99)
        result[arm] = {
            "requests": len(values),
            "p50_ms": round(statistics.median(values), 1),
            "p99_ms": round(p99, 1),
            "worst_ms": round(max(values), 1),
            "p99_of_alone": round(ratio, 2),
        }
        print(arm, result[arm], "" if arm == "alone" else "reached" if ratio <= GOAL else "missed")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two requests")
    parser.add_argument("--arms", default="lists,small lists,jobs,streams")
    options = parser.parse_args()
    result = asyncio.run(measure(options))
    keep("neighbours", [], {"goal": GOAL, "options": vars(options), "arms": result})


if __name__ == "__main__":
    main()
