"""`pip install forestay` without extras: every command works, or says in one line which extra to install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apps import every_command

from forestay.apps.extras import MODULES, MissingExtra, missing_extra, require

ROOT = Path(__file__).parents[3]
NEEDS = {
    "demo": "server,flows",
    "dev": "server,flows",
    "notifications test": "server",
    "orchestrator": "server,flows",
    "prune": "server",
    "reconciler": "server",
    "restored": "server",
    "rules check rules.yaml": "rules",
    "server": "server",
    "token": "server",
}
"""The commands that need an extra."""


def run_all(*options: str, python: str = sys.executable) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [python, every_command.__file__, *options], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return results


def judge(results: dict[str, dict[str, Any]]) -> None:
    """No command raises; those that need an extra say which, in one line, and no other does."""
    assert len(results) > 100
    for name, result in results.items():
        assert (result["help"], "Traceback" in result["err"]) == (0, False), f"{name}: {result}"
        assert result["code"] >= 0, f"{name}: {result}"
        wanted = re.findall(r"pip install 'forestay\[([a-z0-9,]+)\]'", result["err"])
        assert wanted == ([NEEDS[name]] if name in NEEDS else []), f"{name}: {result}"
        if name in NEEDS:
            assert (result["code"], result["err"].count("\n")) == (1, 1), f"{name}: {result}"


@pytest.mark.finding("F-D18")
def test_every_command_runs_or_names_its_extra() -> None:
    judge(run_all("--hide"))


@pytest.mark.finding("F-D18")
def test_a_watcher_runs(tmp_path: Path) -> None:
    script = (
        "import sys; from tests.unit.apps import every_command; every_command.hide_others();"
        f"sys.argv = ['forestay', 'watcher', '--spool', {str(tmp_path)!r}];"
        "from forestay.apps.entry import main; main()"
    )
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "FORESTAY_SERVER": "http://127.0.0.1:9", "FORESTAY_TOKEN": "none"}  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        assert "watching" in process.stderr.readline()
        assert process.poll() is None
    finally:
        process.terminate()
        process.stderr.close()
        process.wait(30)


def test_the_table_has_every_module_of_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain = every_command._plain
    default = {plain(re.split(r"[\[<>=]", text)[0]) for text in project["dependencies"]}
    modules: dict[str, set[str]] = {}
    for module, names in packages_distributions().items():
        for name in names:
            modules.setdefault(plain(name), set()).add(module)
    for extra, wanted in project["optional-dependencies"].items():
        if extra in ("all", "bpel"):
            continue
        packages = {plain(re.split(r"[\[<>=]", text)[0]) for text in wanted}
        assert not packages & default
        for name in packages:
            assert modules[name] & set(MODULES[extra]), f"{extra}: of {name} no module is in the table"
        known = set().union(*(modules[name] for name in packages)) | {"starlette", "google"}
        assert set(MODULES[extra]) <= known


def test_what_is_missing_is_named_at_once_and_what_is_unknown_is_not_explained() -> None:
    require("anything", *MODULES)  # everything is installed where tests run
    assert missing_extra(ModuleNotFoundError(name="nothing_of_ours")) is None
    error = missing_extra(ModuleNotFoundError(name="temporalio.client"))
    assert isinstance(error, MissingExtra)
    assert str(error).endswith("pip install 'forestay[flows]'")
