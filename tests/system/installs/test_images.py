"""The images of `deploy`, built, started and used with Podman and Apptainer. `just images`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from scripts import build_pilot, packages
from tests import servers
from tests.live.run_site import new_namespace
from tests.servers import installed, versions
from tests.system.installs.compose_services import options_of, service
from tests.system.installs.podman import IMAGE, Podman, source_folder
from tests.system.walks import first_ten_minutes
from tests.unit.apps.server.store_room import store_room

ROOT = Path(__file__).resolve().parents[3]
TEMPORAL = "/usr/local/bin/temporal"


def health_check(of: str, port: int) -> list[str]:
    """The check that compose.yaml gives a service, for a container started by hand."""
    check = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text())["services"][of]["healthcheck"]["test"]
    assert check[0] == "CMD"
    words = [word.replace("8470", str(port)) for word in check[1:]]
    return ["--health-cmd", json.dumps(words), "--health-interval", "disable"]


def recover(podman: Podman, folder: Path) -> float:
    """The first ten minutes from `forestay dev` on, typed into the container; the seconds that it took."""
    temporal = installed(f"temporal-{versions()['TEMPORAL_CLI_VERSION']}", "temporal")
    assert temporal is not None
    began = time.monotonic()
    port = first_ten_minutes.free_port()
    home = folder / "home"
    home.mkdir()
    home.chmod(0o777)
    for name, text in first_ten_minutes.files().items():
        (home / name).write_text(text)
    options = [
        "-v",
        f"{temporal / 'temporal'}:{TEMPORAL}:ro",
        "-v",
        f"{home}:/home/ada",
        "-w",
        "/home/ada",
        *health_check("dev", port),
    ]
    for pair in ("HOME=/home/ada", f"FORESTAY_TEMPORAL_PROGRAM={TEMPORAL}", "FORESTAY_STATE=/home/ada/state"):
        options += ["--env", pair]
    podman.start("dev", options, "dev", "--port", str(port), "--state", "/home/ada/state")
    podman.wait_until_healthy("dev")
    until = time.monotonic() + 300
    while "Ctrl-C stops it" not in podman.run("logs", "dev"):
        assert time.monotonic() < until, podman.run("logs", "dev")
        time.sleep(0.5)
    _, *typed = first_ten_minutes.commands()
    shell = [*podman.podman, "exec", "-i", "dev", "bash", "-u"]
    first_ten_minutes.judge(first_ten_minutes.type_in(typed, {}, None, first_ten_minutes.MAY_FAIL, shell))
    taken = time.monotonic() - began
    podman.run("stop", "--time", "60", "dev")
    assert podman.run("inspect", "--format", "{{.State.ExitCode}}", "dev").strip() == "0", podman.run("logs", "dev")
    return taken


def serve(podman: Podman) -> None:
    """A server as compose.yaml starts it: healthy by its check, it answers a token that was made in the container, and stops in order."""
    port = first_ten_minutes.free_port()
    options = ["--volume", "state:/var/lib/forestay", *health_check("server", port)]
    for pair in (
        "FORESTAY_LISTEN=127.0.0.1",
        f"FORESTAY_PORT={port}",
        f"FORESTAY_METRICS_PORT={first_ten_minutes.free_port()}",
    ):
        options += ["--env", pair]
    podman.start("server", options, "server")
    podman.wait_until_healthy("server")
    assert podman.run("exec", "server", "id", "-u").strip() == "10001"
    line = f"FORESTAY_TOKEN=$(forestay token ada --role administrator) forestay status --server http://127.0.0.1:{port} --json"
    shown = podman.run("exec", "server", "sh", "-c", line)
    assert "{" in shown, shown
    podman.run("exec", "server", "sh", "-c", "touch /opt/forestay/x", code=1)
    podman.run("stop", "--time", "60", "server")
    assert podman.run("inspect", "--format", "{{.State.ExitCode}}", "server").strip() == "0", podman.run(
        "logs", "server"
    )
    podman.run("rm", "server")


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """Podman with the image."""
    folder = tmp_path_factory.mktemp("images")
    wheel = packages.build_wheel(folder / "dist")
    with Podman(folder / "podman") as podman:
        podman.make_base()
        podman.build(source_folder(folder / "source", wheel))
        yield podman


@pytest.mark.slow
def test_the_image_is_healthy_and_recovers_a_flow(podman: Podman, tmp_path: Path) -> None:
    shown = json.loads(podman.run("image", "inspect", IMAGE))[0]
    assert shown["Config"]["User"] == "10001:10001"
    serve(podman)
    assert recover(podman, tmp_path) > 0


SERVICES = ("server", "reconciler", "orchestrator")
FLOW = """\
forestay: 1
name: reads
tasks:
  fetch:
    max_attempts: 3
    outputs: {data: data.txt}
    run: |
      if [ "$FORESTAY_ATTEMPT" = 1 ]; then echo "curl: (56) Recv failure: Connection reset by peer" >&2; exit 56; fi
      echo fetched > data.txt
  report: {inputs: {in.txt: "${tasks.fetch.outputs.data}"}, run: cat in.txt}
"""


def pilot_image(podman: Podman, folder: Path) -> Path:
    """`deploy/apptainer/pilot.def` built by the real Apptainer, on the local base; its %post and %test, which show the version, want more capabilities than root has everywhere."""
    source = folder / "pilot"
    build_pilot.build(source / "dist/forestay-pilot.pyz")
    head, *sections = re.split(r"^(?=%)", (ROOT / "deploy/apptainer/pilot.def").read_text(), flags=re.MULTILINE)
    assert [line.split(":")[0] for line in head.splitlines()[:2]] == ["Bootstrap", "From"]
    kept = [section for section in sections if not section.startswith(("%post", "%test"))]
    assert len(kept) == len(sections) - 2
    (source / "pilot.def").write_text(f"Bootstrap: oci-archive\nFrom: {podman.base_archive(folder)}\n\n{''.join(kept)}")
    subprocess.run(
        [apptainer(), "build", "pilot.sif", "pilot.def"], cwd=source, check=True, stdout=sys.stderr, stderr=sys.stderr
    )
    image = source / "pilot.sif"
    assert subprocess.check_output([*run_in(), str(image), "--version"], text=True).strip() == "0.1.0"
    return image


def start_services(podman: Podman, secrets: Path, port: int, namespace: str) -> None:
    """The profile `site`. PostgreSQL and Temporal are this machine's, under the names that the file gives them: their images cannot be fetched."""
    host, _, temporal_port = servers.temporal().rpartition(":")
    assert host == "127.0.0.1"
    changed = {"FORESTAY_TEMPORAL": f"temporal:{temporal_port}", "FORESTAY_TEMPORAL_NAMESPACE": namespace}
    for name in SERVICES:
        options = options_of(name, secrets, changed)
        if name == "server":
            own = {"FORESTAY_LISTEN": "127.0.0.1", "FORESTAY_PORT": str(port)}
            options = [*options_of(name, secrets, changed | own), *health_check(name, port)]
        # The compose file's network resolves the names of all services; the host's network none.
        podman.start(
            name,
            [*options, "--add-host", "postgres:127.0.0.1", "--add-host", "temporal:127.0.0.1"],
            *service(name)["command"],
        )
        if name == "server":
            podman.wait_until_healthy(name)


@contextmanager
def pilot_of(image: Path, podman: Podman, folder: Path, url: str) -> Iterator[Path]:
    """A pilot in the image, with its log."""
    enrolment, log = folder / "enrolment", folder / "pilot.log"
    enrolment.touch(0o600)
    enrolment.write_text(podman.run("exec", "server", "forestay", "token", "p", "--role", "enrol").strip())
    (folder / "outputs").mkdir()
    words = [*run_in(), "--bind", str(folder), str(image), "--server", url, "--token-file", str(enrolment)]
    words += ["--outputs", str(folder / "outputs"), "--work", str(folder / "work"), "--slots", "2"]
    with log.open("w") as out, subprocess.Popen(words, stdout=out, stderr=out) as pilot:
        try:
            yield log
        finally:
            pilot.terminate()


def run_flow(podman: Podman, folder: Path, url: str) -> None:
    """A flow whose first job fails once; both jobs complete."""
    token = podman.run("exec", "server", "forestay", "token", "ada", "--role", "administrator").strip()
    environment = os.environ | {"FORESTAY_SERVER": url, "FORESTAY_TOKEN": token}
    (folder / "flow.yaml").write_text(FLOW)
    own = [sys.executable, "-m", "forestay"]
    with pilot_of(pilot_image(podman, folder), podman, folder, url) as log:
        ended = subprocess.run(
            [*own, "run", str(folder / "flow.yaml")],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert ended.returncode == 0, (ended.stdout, ended.stderr, log.read_text())
    jobs = json.loads(subprocess.check_output([*own, "jobs", "--json"], env=environment))["jobs"]
    assert {job["name"]: (job["state"], job["attempt"]) for job in jobs} == {
        "fetch": ("completed", 2), "report": ("completed", 1),
    }  # fmt: skip


def run_in() -> list[str]:
    """As an ordinary user has it, whatever capabilities this test's user has."""
    return [apptainer(), "run", "--no-privs"]


def apptainer() -> str:
    program = os.environ.get("FORESTAY_TEST_APPTAINER", "")
    assert program, "`just images` names the program"
    return program


@pytest.mark.slow
async def test_the_site_profile_of_compose_recovers_a_flow_on_a_pilot_of_the_apptainer_image(
    podman: Podman, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    port = first_ten_minutes.free_port()
    url = f"http://127.0.0.1:{port}"
    async with store_room("postgresql", tmp_path) as store:
        settings = secrets / "forestay.toml"
        settings.write_text(f'store = "{store.replace("127.0.0.1", "postgres")}"\nurl = "{url}"\n')
        settings.chmod(0o600)
        os.chown(settings, 10001, 10001)
        await asyncio.to_thread(start_services, podman, secrets, port, await new_namespace())
        await asyncio.to_thread(run_flow, podman, tmp_path, url)
        for name in reversed(SERVICES):
            podman.run("stop", "--time", "60", name)
            assert podman.run("inspect", "--format", "{{.State.ExitCode}}", name).strip() == "0", podman.run(
                "logs", name
            )
            podman.run("rm", name)


def test_a_health_check_can_be_given_by_hand() -> None:
    words = json.loads(health_check("server", 1234)[1])
    assert shlex.join(words).count("1234") == 1
