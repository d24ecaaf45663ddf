"""A real Airflow of the test's own: scheduler, triggerer, DAG processor and API server on SQLite, with our provider installed beside it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from platformdirs import user_cache_path
from tests.system.chaos.processes import free_port, launch
from tests.system.insertion.shell import ROOT, VERSIONS
from tests.unit.apps.server.running import until

VERSION = VERSIONS["AIRFLOW_VERSION"]
PROVIDER = ROOT / "plugins" / "airflow-provider-forestay"
PARTS = (("api-server", "--workers", "1"), ("scheduler",), ("triggerer",), ("dag-processor",))
PATIENCE = 300.0


def program() -> Path:
    """Airflow's own command in an environment of its own, kept in the user's cache: it takes minutes to install."""
    place = user_cache_path("forestay") / f"airflow-{VERSION}"
    airflow = place / "bin" / "airflow"
    if not airflow.exists():
        shutil.rmtree(place, ignore_errors=True)
        python = str(place / "bin" / "python")
        subprocess.run(["uv", "venv", "--quiet", "--python", "3.11", place], check=True)
        subprocess.run(
            ["uv", "pip", "install", "--quiet", "--python", python, f"apache-airflow=={VERSION}"], check=True
        )
    return airflow


@dataclass(eq=False)
class AirflowSite:
    """What runs, and how it is asked."""

    home: Path
    airflow: Path
    port: int
    settings: dict[str, str] = field(default_factory=dict)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("FORESTAY_", "AIRFLOW"))}
        own = f"http://127.0.0.1:{self.port}"
        return bare | {
            "AIRFLOW_HOME": str(self.home),
            "PYTHONPATH": str(self.home / "provider"),
            "PATH": f"{self.airflow.parent}:{os.environ['PATH']}",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{own}/execution/",
            "AIRFLOW__API__BASE_URL": own,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__SECRET_KEY": "one-for-all-parts-of-this-test",
            "AIRFLOW__API_AUTH__JWT_SECRET": "one-for-all-parts-of-this-test-and-long-enough-for-any-signature-there-is",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.home / "logs"),
        } | self.settings  # fmt: skip

    def run(self, *words: str) -> str:
        ended = subprocess.run(
            [self.airflow, *words], env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=PATIENCE, check=False
        )  # fmt: skip
        assert ended.returncode == 0, (words, ended.stdout[-3000:], ended.stderr[-3000:])
        return ended.stdout

    def prepare(self) -> None:
        (self.home / "dags").mkdir(parents=True, exist_ok=True)
        python = str(self.airflow.with_name("python"))
        wanted = ["uv", "pip", "install", "--quiet", "--no-deps", "--python", python]
        subprocess.run([*wanted, "--target", self.home / "provider", PROVIDER], check=True)
        self.run("db", "migrate")

    def start(self) -> None:
        for part in PARTS:
            log = self.home / f"{part[0]}.log"
            self.running.append(launch([str(self.airflow), *part], log, environment=self.environment))

    def stop(self) -> None:
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        give_up = time.monotonic() + 15
        for process in self.running:
            try:
                process.wait(max(0.1, give_up - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Look into Airflow's own database."""
        with closing(sqlite3.connect(f"file:{self.home / 'airflow.db'}?mode=ro", uri=True, timeout=30)) as database:
            return database.execute(query, values).fetchall()

    def state(self, dag: str, task: str) -> str | None:
        rows = self.rows("SELECT state FROM task_instance WHERE dag_id = ? AND task_id = ?", dag, task)
        return str(rows[0][0]) if rows else None

    def trigger(self, dag: str) -> None:
        with self.api() as asked:
            answer = asked.post(f"/api/v2/dags/{dag}/dagRuns", json={"logical_date": None})
            assert answer.is_success, answer.text

    def api(self) -> httpx.Client:
        base = f"http://127.0.0.1:{self.port}"
        token = httpx.get(f"{base}/auth/token", timeout=30, trust_env=False).json()["access_token"]
        return httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False)

    async def until(self, condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
        async def there() -> Any:
            assert all(process.poll() is None for process in self.running), (
                f"a part of Airflow has ended: {self.tails()}"
            )
            return await asyncio.to_thread(condition)

        return await until(there, f"{what}; {self.home}", patience)

    def tails(self) -> str:
        return json.dumps(
            {log.name: log.read_text(errors="replace")[-1500:] for log in self.home.glob("*.log")}, indent=1
        )

    def task_logs(self) -> str:
        return "".join(log.read_text(errors="replace") for log in (self.home / "logs").rglob("*.log"))


@asynccontextmanager
async def airflow_site(home: Path, dags: str, **settings: str) -> AsyncIterator[AirflowSite]:
    """Airflow with these DAGs, unpaused; gone at the end."""
    site = AirflowSite(home, await asyncio.to_thread(program), free_port(), settings)
    await asyncio.to_thread(site.prepare)
    (home / "dags" / "flows.py").write_text(dags)
    site.start()
    try:

        def known() -> bool:
            try:
                with site.api() as asked:
                    return bool(asked.get("/api/v2/dags").json()["total_entries"])
            except (httpx.HTTPError, KeyError, ValueError):
                return False

        await site.until(known, "Airflow to know the flows")
        yield site
    finally:
        await asyncio.to_thread(site.stop)
