"""A real Prometheus that watches real processes by our rules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from tests.system.chaos.processes import free_port, launch
from tests.unit.apps.server.running import Domain

from forestay.adapters.private_file import write_private

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy/prometheus/forestay.rules.yaml"
BOARD = ROOT / "deploy/grafana/forestay.json"


def scraping(folder: Path, domain: Domain, rules: str, **targets: str) -> None:
    """Write what Prometheus is to read, as docs/how-to/monitoring.md tells, only more often."""
    write_private(folder / "token", domain.token("viewer", tenant="watchers"))
    (folder / "rules.yaml").write_text(rules)
    scrape = [
        {
            "job_name": f"forestay-{what}",
            "authorization": {"credentials_file": str(folder / "token")},
            "static_configs": [{"targets": [target]}],
        }
        for what, target in targets.items()
    ]
    every = {"scrape_interval": "500ms", "scrape_timeout": "400ms", "evaluation_interval": "500ms"}
    (folder / "prometheus.yaml").write_text(
        yaml.safe_dump({"global": every, "rule_files": ["rules.yaml"], "scrape_configs": scrape})
    )


@asynccontextmanager
async def prometheus(folder: Path) -> AsyncIterator[str]:
    """Its address."""
    port = free_port()
    words = ["prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    process = launch([*words, f"--web.listen-address=127.0.0.1:{port}"], folder / "prometheus.log")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
