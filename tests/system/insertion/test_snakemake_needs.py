"""What our executor plugin asks for a job of Snakemake."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

PLUGIN = Path(__file__).parents[3] / "plugins" / "snakemake-executor-plugin-forestay"


def test_several_nodes_are_refused_because_snakemake_would_run_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("snakemake_interface_executor_plugins")
    monkeypatch.syspath_prepend(str(PLUGIN))
    plugin = importlib.import_module("snakemake_executor_plugin_forestay.needs")
    assert plugin.needs(SimpleNamespace(name="part", threads=2, resources={"nodes": 1})) == {"cpus": 2}
    with pytest.raises(plugin.WorkflowError, match="part asks for 4 nodes, and jobs of Snakemake run on one"):
        plugin.needs(SimpleNamespace(name="part", threads=2, resources={"nodes": 4}))
