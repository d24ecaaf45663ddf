"""Flow formats come with packages of their own: without one a process says what to install, with one it loads it when a document comes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from tests.unit.apps.cli.conftest import Shell, api, forestay, lonely
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.bpel.jobs import JOBS, POLLING, job_process

from forestay.adapters.httpx.callback_transport import HttpxCallbackTransport
from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.apps import flow_formats
from forestay.apps.flow_formats import InstalledFormats, NotInstalled
from forestay.domain.flows.definition.flow_format import PACKAGES, PYTHON, format_of, run_type
from forestay.ports.errors import Transient

__all__ = ["api", "forestay", "lonely"]
INSTALL = "pip install 'forestay[bpel]'"
BODY = {"process": job_process(POLLING), "jobs": JOBS}


@pytest.fixture
def _absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if no package of a format were installed."""
    real = metadata.distribution

    def distribution(name: str) -> metadata.Distribution:
        if name in PACKAGES.values():
            raise metadata.PackageNotFoundError(name)
        return real(name)

    flow_formats._package.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(metadata, "distribution", distribution)
        yield
    flow_formats._package.cache_clear()


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    return Domain(f"sqlite:///{tmp_path}/jobs.db", tmp_path)


async def stored(server: RunningServer) -> str:
    answer = await server.person("submitter", tenant="t").post("/v1/flows/bpel", json=BODY)
    version: str = answer.json()["version"]
    return version


def test_the_types_of_runs_are_stored_names() -> None:
    assert temporal_runtime.RUNS == ("run", "python-run", "bpel-run")
    assert run_type(PYTHON) == temporal_runtime.PYTHON_RUN


def test_each_package_has_its_format() -> None:
    formats = InstalledFormats()
    assert len(formats.installed()) == len(PACKAGES)
    for name in PACKAGES:
        workflow = formats.get(name).workflow()
        assert workflow.__temporal_workflow_definition.name == run_type(name)
        assert formats.get(name).commands()


@pytest.mark.parametrize(("plain", "name"), [({"bpel": []}, "bpel"), ({"python": ""}, "python"), ({"tasks": {}}, "")])
def test_a_flow_says_its_format(plain: dict[str, object], name: str) -> None:
    assert format_of(plain) == name


@pytest.mark.usefixtures("_absent")
def test_without_its_package_a_format_is_refused() -> None:
    assert InstalledFormats().installed() == []
    with pytest.raises(NotInstalled, match="package forestay-bpel, which is not installed here") as refused:
        InstalledFormats().get("bpel")
    assert INSTALL in str(refused.value)


async def test_a_server_without_the_package_says_what_to_install(
    domain: Domain, request: pytest.FixtureRequest
) -> None:
    async with domain.server() as server:
        version = await stored(server)
    request.getfixturevalue("_absent")
    async with domain.server() as server:
        ada = server.person("submitter", tenant="t")
        refused = await ada.post("/v1/flows/bpel", json=BODY)
        assert (refused.status_code, INSTALL in refused.json()["detail"]) == (400, True)
        assert (await server.client().post("/v1/flows/bpel", json=BODY)).status_code == 401
        assert (await ada.post("/soap/jobs", content=b"<a/>")).status_code == 404
        # A process that was stored while the package was there is still listed by its name, and refused where it would be read.
        assert await server.services.components.flows.name("t", version) == "jobs"
        assert (await server.services.components.flows.plan("t", version)).grown
        read = await ada.get(f"/v1/flows/{version}")
        assert (read.status_code, INSTALL in read.json()["detail"]) == (400, True)


@pytest.mark.usefixtures("_absent")
async def test_a_callback_in_a_format_that_is_missing_waits() -> None:
    transport = HttpxCallbackTransport(("127.0.0.1",), InstalledFormats())
    with pytest.raises(Transient, match="pip install"):
        await transport.post("http://127.0.0.1:1/told#soap", {"state": "completed", "job": "j"}, delivery="d")


@pytest.mark.usefixtures("_absent")
@pytest.mark.parametrize("words", [["bpel"], ["bpel", "--help"], ["bpel", "check", "nightly.bpel"]], ids=" ".join)
def test_the_command_line_says_what_to_install(forestay: Shell, words: list[str]) -> None:
    ended = forestay(*words)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"forestay: {NotInstalled('bpel')}\n"


@pytest.mark.usefixtures("_absent")
def test_help_lists_the_command_all_the_same(forestay: Shell) -> None:
    assert "bpel" in forestay("--help").out


LOADED = "import sys; print(*sorted(name for name in sys.modules if name.startswith('forestay_bpel')))"
APP = """
from pathlib import Path
from forestay.apps.compose.components import make_components
from forestay.apps.compose.server import ServerComponents
from forestay.apps.config.settings import Settings
from forestay.apps.server.app import make_app
settings = Settings.model_validate({"store": "sqlite:///jobs.db", "state": Path("state")})
assert make_app(ServerComponents(make_components(settings))).routes
"""


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import forestay.apps.entry", []),
        ("import forestay.apps.reconciler.process, forestay.apps.compose.reconciler", []),
        ("import forestay.apps.orchestrator.process, forestay.adapters.temporal.orchestrator", []),
        ("import forestay.apps.server.app", []),
        (APP, ["forestay_bpel", "forestay_bpel.flow_format", "forestay_bpel.server", "forestay_bpel.server.routes"]),
    ],
    ids=["command line", "reconciler", "orchestrator", "server", "server that starts"],
)
def test_a_format_is_not_loaded_before_a_document_comes(code: str, loaded: list[str], tmp_path: Path) -> None:
    words = [sys.executable, "-W", "ignore", "-c", f"{code}\n{LOADED}"]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split() == loaded
