"""What it takes to start: processor time until a process is of use, and nothing imported later."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.apps.processor_time import spent, within
from tests.cli.fake_api import TOKEN, FakeApi, job_json

pytestmark = [pytest.mark.finding("F-G3"), pytest.mark.alone]


def environment(**settings: object) -> dict[str, str]:
    """That of this process without its settings of ours; bytecode is kept, as after an installation."""
    left = ("HOLDFAST_", "PYTHONDONTWRITEBYTECODE", "COVERAGE_", "COV_CORE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left)}
    return kept | {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()}


COMMANDS = {
    "help": ["--help"],
    "help of a verb": ["jobs", "--help"],
    "jobs": ["jobs", "--state", "failed", "--since", "2h", "--limit", "10"],
    "queue": ["queue"],
    "submit": ["submit", "--name", "hello", "--", "true"],
    "status": ["status"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
async def test_a_command_is_quick(words: list[str], tmp_path: Path) -> None:
    async def one(api: FakeApi) -> float:
        return spent([sys.executable, "-m", "holdfast", *words], environment(server=api.url, token=TOKEN) | home)

    home = {name: str(tmp_path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CONFIG_DIRS")}
    with FakeApi().serving() as api:
        api.put(job_json(1, state="failed"))
        await within(0.25, partial(one, api))


async def test_the_command_line_is_imported_quickly() -> None:
    async def one() -> float:
        return spent([sys.executable, "-c", "import holdfast.apps.entry"], environment())

    await within(0.12, one)
