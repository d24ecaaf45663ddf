"""Tasks as a client of TES asks for them, and what it sees of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import tes

PATIENCE = 180


def shell(name: str, script: str, **more: Any) -> tes.Task:
    return tes.Task(name=name, executors=[tes.Executor(image="alpine", command=["sh", "-c", script])], **more)


async def create(client: tes.HTTPClient, task: tes.Task) -> str:
    made: str = await asyncio.to_thread(client.create_task, task)
    return made


async def wait(client: tes.HTTPClient, task: str) -> dict[str, Any]:
    """Until the task has ended, as py-tes itself waits; then all that is shown of it."""
    await asyncio.to_thread(client.wait, task, PATIENCE)
    shown: dict[str, Any] = (await asyncio.to_thread(client.get_task, task, "FULL")).as_dict()
    return shown


async def run(client: tes.HTTPClient, task: tes.Task) -> dict[str, Any]:
    return await wait(client, await create(client, task))


def runs(path: Path) -> int:
    """How often a script ran that leaves one line each time."""
    return len(path.read_text().splitlines()) if path.exists() else 0


def answers(shown: dict[str, Any]) -> dict[str, Any]:
    """What a client is told of a task, without what no two tasks have in common: ids, times, names of hosts."""
    (log,) = shown["logs"]
    kept = {key: value for key, value in shown.items() if key not in ("id", "creation_time", "logs")}
    executors = [{key: other_log.get(key) for key in ("exit_code", "stdout", "stderr")} for other_log in log["logs"]]
    outputs = sorted((output["path"], str(output["size_bytes"])) for output in log.get("outputs") or [])
    return kept | {"executors ran": executors, "outputs brought": outputs}
