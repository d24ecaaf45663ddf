"""The image of `deploy/Containerfile`, built, started and used with Podman. `just images`."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest
import yaml
from scripts import packages
from tests.servers import installed, versions
from tests.system.installs.podman import IMAGE, Podman, source_folder
from tests.system.walks import first_ten_minutes

ROOT = Path(__file__).resolve().parents[3]
TEMPORAL = "/usr/local/bin/temporal"


def health_check(service: str, port: int) -> list[str]:
    """The check that compose.yaml gives a service, for a container started by hand."""
    check = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text())["services"][service]["healthcheck"][
        "test"
    ]
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


@pytest.mark.slow
def test_the_image_is_built_started_healthy_and_recovers_a_flow(tmp_path: Path) -> None:
    wheel = packages.build_wheel(tmp_path / "dist")
    with Podman(tmp_path / "podman") as podman:
        podman.make_base()
        podman.build(source_folder(tmp_path / "source", wheel))
        shown = json.loads(podman.run("image", "inspect", IMAGE))[0]
        assert shown["Config"]["User"] == "10001:10001"
        serve(podman)
        assert recover(podman, tmp_path) > 0


def test_a_health_check_can_be_given_by_hand() -> None:
    words = json.loads(health_check("server", 1234)[1])
    assert shlex.join(words).count("1234") == 1
