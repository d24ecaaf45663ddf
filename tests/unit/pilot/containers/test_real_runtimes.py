"""Jobs in containers of the real Podman and the real Apptainer, with images of a real registry. `just containers` runs them, as root."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.unit.pilot.conftest import SOURCE, RunningPilot
from tests.unit.pilot.containers.images import LayoutFolder, layer_of, unpacked
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer, until
from tests.unit.pilot.process.test_isolation import memory_group

from forestay_pilot.containers.runtimes import ContainerRuntimes
from forestay_pilot.job_secrets.site_secrets import SiteSecretsFile
from forestay_pilot.process.payload import Surroundings

StartPilot = Callable[..., RunningPilot]
APPTAINER = os.environ.get("FORESTAY_TEST_APPTAINER", "")
PODMAN = shutil.which("podman") or ""
pytestmark = pytest.mark.slow
MIB = 1 << 20


class Registry(NamedTuple):
    """A registry with some images in it."""

    address: str
    refusing: str
    """The address of one that wants a password."""
    silent: str
    """An address at which nothing answers."""
    digest: str
    image: Path
    layout: LayoutFolder


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    for program in ("docker-registry", "skopeo"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} (apt-get install docker-registry skopeo)")
    folder = tmp_path_factory.mktemp("registry")
    image = unpacked(folder / "image")
    layout = LayoutFolder(folder / "layout")
    layout.image("v1", [layer_of(image)], env=("GREETING=hello", "PATH=/usr/bin"))
    layout.image("strange", [layer_of(image)], architecture="s390x")
    processes = []
    addresses: list[str] = []
    for name, access in (("open", ""), ("closed", f"auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}\n")):
        address = f"127.0.0.1:{free_port()}"
        settings = folder / f"{name}.yml"
        settings.write_text(
            f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}/{name}}}}}\nhttp: {{addr: {address}}}\n{access}"
        )
        (folder / "htpasswd").write_text("nobody:$2y$05$aaaaaaaaaaaaaaaaaaaaaOaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n")
        processes.append(
            subprocess.Popen(
                ["docker-registry", "serve", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        addresses.append(address)
        until(partial(answers, address), f"the registry at {address}")
    for tag in ("v1", "strange"):
        run(
            "skopeo",
            "copy",
            "-q",
            "--dest-tls-verify=false",
            f"oci:{layout.folder}:{tag}",
            f"docker://{addresses[0]}/demo:{tag}",
        )
    # What the registry has may be packed otherwise than what was sent to it.
    name = f"docker://{addresses[0]}/demo:v1"
    digest = run("skopeo", "inspect", "--tls-verify=false", "--format", "{{.Digest}}", name).strip()
    opened, closed = addresses
    yield Registry(opened, closed, f"127.0.0.1:{free_port()}", digest, image, layout)
    for process in processes:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


@pytest.fixture(params=["podman", "apptainer"])
def runtimes(
    request: pytest.FixtureRequest, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ContainerRuntimes]:
    """One real runtime, set up as a site would: its registries, its store, and what this machine allows."""
    if os.getuid():
        pytest.skip("this set-up of the runtimes is for root")
    lines = [f'[[registry]]\nlocation = "{address}"\ninsecure = true\n' for address in registry[:3]]
    (tmp_path / "registries.conf").write_text("".join(lines))
    store = f'[storage]\ndriver = "overlay"\ngraphroot = "{tmp_path}/store"\nrunroot = "{tmp_path}/run"\n'
    (tmp_path / "storage.conf").write_text(store)
    limits = 'default_ulimits = ["nofile=20000:20000", "nproc=5000:5000"]'
    (tmp_path / "containers.conf").write_text(
        f'[containers]\n{limits}\n[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(tmp_path / "registries.conf"))
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "storage.conf"))
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    monkeypatch.setenv("APPTAINER_NOHTTPS", "1")
    monkeypatch.setenv("APPTAINER_CACHEDIR", str(tmp_path / "apptainer"))
    monkeypatch.setenv("APPTAINER_NO_PRIVS", "1")
    program = {"podman": PODMAN, "apptainer": APPTAINER}[request.param]
    if not program:
        pytest.skip(f"there is no {request.param}; see `just containers`")
    images = str(tmp_path / "images")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("shared\n")
    mounts = (f"{tmp_path}/data",)
    if request.param == "podman":
        yield ContainerRuntimes(podman=program, images=images, mounts=mounts)
        left = subprocess.run([program, "ps", "--all", "--quiet"], capture_output=True, text=True, check=True).stdout
        subprocess.run([program, "system", "reset", "--force"], capture_output=True, check=False)
        assert left == "", "no container is left"
    else:
        yield ContainerRuntimes(apptainer=program, images=images, mounts=mounts)


def submit(server: FakeServer, image: str, script: str, **changes: Any) -> dict[str, Any]:
    claim = server.submit("sh", "-c", script, **changes)
    claim["specification"]["container"] = image
    return claim


def test_jobs_of_one_image_pull_it_once_and_say_which_it_was(
    server: FakeServer, pilot: StartPilot, runtimes: ContainerRuntimes, registry: Registry, tmp_path: Path
) -> None:
    script = f"cat /etc/os-release {tmp_path}/data/file; echo $GREETING $MODE; pwd; touch /usr/x || echo kept; echo x > /tmp/y; echo made > out; echo {{sample}}"
    secret = "not-for-a-command-line"
    claims = [
        submit(server, f"{registry.address}/demo:v1", script, environment={"MODE": secret}, outputs=["out"])
        for _ in range(4)
    ]
    for number, claim in enumerate(claims):
        claim["parameters"] = {"sample": f"A {number}"}
    pilot(slots=4, resources={"cpus": 8}, surroundings=Surroundings(grace=5.0, containers=runtimes))
    for number, claim in enumerate(claims):
        end = server.end_of(claim)
        assert end["outcome"] == "ok", end["log_tail"]
        lines = end["log_tail"].splitlines()
        for line in ("ID=image-of-a-test", "shared", f"hello {secret}", "kept", f"A {number}"):
            assert line in lines, end["log_tail"]
        assert end["manifest"]["files"] == 1
        assert end["image"].startswith("sif-sha256:") if runtimes.apptainer else end["image"] == registry.digest
    came = sorted(server.end_of(claim)["staging"][0]["from"] for claim in claims)
    assert came == ["host", "host", "host", "registry"]
    pinned = submit(server, f"docker://{registry.address}/demo:v1@{registry.digest}", "echo pinned")
    assert server.end_of(pinned)["log_tail"].splitlines()[-1] == "pinned"
    assert server.end_of(pinned)["image"] == registry.digest


def test_an_image_that_cannot_be_had_has_its_own_cause(
    server: FakeServer, pilot: StartPilot, runtimes: ContainerRuntimes, registry: Registry, tmp_path: Path
) -> None:
    nothing = f"sha256:{'0' * 64}"
    wanted = {
        f"{registry.address}/demo:v9": "not-found",
        f"{registry.address}/nothing:v1": "not-found",
        f"{registry.address}/demo@{nothing}": "not-found",
        f"{registry.refusing}/demo:v1": "denied",
        f"{registry.silent}/demo:v1": "network",
        f"oci-archive:{tmp_path}/nothing.tar": "not-found",
    }
    if runtimes.podman:  # Apptainer takes such an image for one of this machine
        wanted[f"{registry.address}/demo:strange"] = "platform"
    claims = {image: submit(server, image, f"touch {tmp_path}/outside") for image in wanted}
    pilot(slots=4, resources={"cpus": 8}, surroundings=Surroundings(grace=5.0, containers=runtimes))
    ended = {}
    for image, claim in claims.items():
        end = server.end_of(claim)
        ended[image] = (end["reason"], end["error"], end["stage"])
        assert image in end["log_tail"]
    assert ended == {image: ("image-failed", error, "staging-in") for image, error in wanted.items()}
    assert not (tmp_path / "outside").exists()


def test_a_folder_and_an_archive_run_as_well(
    server: FakeServer, pilot: StartPilot, runtimes: ContainerRuntimes, registry: Registry, tmp_path: Path
) -> None:
    archive = f"oci-archive:{tmp_path}/image.tar"
    run("skopeo", "copy", "-q", f"oci:{registry.layout.folder}:v1", archive)
    layout = f"oci:{registry.layout.folder}:v1"
    claims = [submit(server, image, "cat /var/marker") for image in (str(registry.image), archive, layout)]
    pilot(slots=3, resources={"cpus": 8}, surroundings=Surroundings(grace=5.0, containers=runtimes))
    for claim in claims:
        end = server.end_of(claim)
        assert "of the image" in end["log_tail"].splitlines(), end["log_tail"]
    if runtimes.apptainer:
        kept = next(path for path in (tmp_path / "images").glob("*/image.sif"))
        shutil.copy(kept, tmp_path / "tool.sif")
        end = server.end_of(submit(server, str(tmp_path / "tool.sif"), "cat /var/marker"))
        assert "of the image" in end["log_tail"].splitlines(), end["log_tail"]
        assert end["image"].startswith("sif-sha256:")


def test_a_stop_reaches_the_payload_and_leaves_nothing(
    server: FakeServer, pilot: StartPilot, runtimes: ContainerRuntimes, registry: Registry, tmp_path: Path
) -> None:
    script = "trap 'echo asked; exit 3' TERM; setsid sleep 301 & echo up > up; sleep 302 & wait"
    claim = submit(server, f"{registry.address}/demo:v1", script)
    pilot(surroundings=Surroundings(grace=20.0, containers=runtimes))
    until(lambda: any((tmp_path / "work").glob("pilot-*/jobs/*/up")), "the payload's start")
    assert sleeping() != []
    server.order("cancel", {"claim": claim["claim"]})
    end = server.end_of(claim)
    assert end["reason"] == "cancelled"
    assert "asked" in end["log_tail"], end["log_tail"]
    until(lambda: not sleeping(), "the end of everything in the container")


def test_what_does_not_stop_is_killed_with_all_that_it_started(
    server: FakeServer, pilot: StartPilot, runtimes: ContainerRuntimes, registry: Registry, tmp_path: Path
) -> None:
    script = "trap '' TERM; setsid sleep 301 & sleep 302 & echo up > up; while :; do sleep 1; done"
    claim = submit(server, f"{registry.address}/demo:v1", script)
    pilot(surroundings=Surroundings(grace=0.5, containers=runtimes))
    until(lambda: any((tmp_path / "work").glob("pilot-*/jobs/*/up")), "the payload's start")
    server.order("cancel", {"claim": claim["claim"]})
    assert server.end_of(claim)["reason"] == "cancelled"
    until(lambda: not sleeping(), "the end of everything in the container")


def test_a_pilot_that_is_killed_takes_its_containers_with_it(
    server: FakeServer, runtimes: ContainerRuntimes, registry: Registry, tmp_path: Path
) -> None:
    """The next pilot on the host removes what Podman still has of the container, and runs its job."""
    claim = submit(server, f"{registry.address}/demo:v1", "setsid sleep 301 & sleep 302 & echo up > up; wait")
    (tmp_path / "outputs").mkdir()
    options = [f"--apptainer={runtimes.apptainer or 'off'}", f"--podman={runtimes.podman or 'off'}", "--bubblewrap=off"]

    def begin(*more: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "forestay_pilot", "--server", server.url, "--outputs", str(tmp_path / "outputs")]
        words += ["--work", str(tmp_path / "work"), "--images", runtimes.images, "--claim-wait", "1", *options, *more]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "FORESTAY_ENROL_TOKEN": ENROL_TOKEN}
        return subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)

    first = begin()
    until(lambda: any((tmp_path / "work").glob("pilot-*/jobs/*/up")), "the payload's start")
    assert sleeping() != []
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    until(lambda: not sleeping(), "the end of everything in the container")
    other = submit(server, f"{registry.address}/demo:v1", "echo next")
    second = begin("--max-jobs", "1")
    end = server.end_of(other)
    assert end["log_tail"].splitlines()[-1] == "next"
    assert end["staging"][0]["from"] == "host", "the image is still there"
    assert second.wait(60) == 0
    assert claim["claim"] != other["claim"]


def test_memory_is_limited_and_measured_inside(
    server: FakeServer, pilot: StartPilot, runtimes: ContainerRuntimes, registry: Registry
) -> None:
    group = memory_group()
    if not group:
        pytest.skip("no control groups of memory can be made here")
    hungry = "tail /dev/zero"  # it looks for the last lines of what has none, and keeps all of it
    big = submit(server, f"{registry.address}/demo:v1", hungry, resources={"cpus": 1, "memory": 200 * MIB})
    modest = submit(server, f"{registry.address}/demo:v1", "echo fine", resources={"cpus": 1, "memory": 200 * MIB})
    pilot(slots=2, surroundings=Surroundings(grace=1.0, groups=group, containers=runtimes))
    end = server.end_of(big)
    assert end["outcome"] == "failure"
    assert end["oom_kills"] >= 1, end
    assert 150 * MIB <= end["peak_memory"] <= 210 * MIB
    fine = server.end_of(modest)
    assert fine["outcome"] == "ok", fine["log_tail"]
    assert 0 < fine["peak_memory"] < 150 * MIB
    claims = (big["claim"], modest["claim"])

    def left() -> list[Path]:
        return [path for claim in claims for path in Path("/sys/fs/cgroup").glob(f"*/**/forestay-{claim}")]

    until(lambda: not left(), "the removal of the control groups")


def sleeping() -> list[int]:
    """The processes of the tests' containers that are there."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] in ([b"sleep", b"301"], [b"sleep", b"302"]):
                found.append(int(name))
    return found


def test_a_container_gets_the_secrets_of_its_job(
    server: FakeServer, pilot: StartPilot, runtimes: ContainerRuntimes, registry: Registry, tmp_path: Path
) -> None:
    site = tmp_path / "secrets.json"
    values = {"db": "the-password-of-the-job", "key": "first line of a key\nsecond line of a key\n"}
    site.write_text(json.dumps({"values": values, "owners": {"ann": ["file:*"]}}))
    site.chmod(0o600)
    script = "test ${#GO_PASSWORD} = 23 && test ${#KEY} = 40 && echo known; cat $FILE; echo x > $FILE || echo kept; echo $GO_PASSWORD; echo made > out"
    claim = submit(server, f"{registry.address}/demo:v1", script, outputs=["*"], owner="ann")
    # A variable whose name means something to the runtime, one with several lines, and a file.
    claim["specification"]["secrets"] = {
        "GO_PASSWORD": "file:db",
        "KEY": "file:key",
        "FILE": {"file": "key", "as": "file"},
    }
    surroundings = Surroundings(grace=5.0, containers=runtimes)
    pilot(surroundings=surroundings, secrets=SiteSecretsFile(str(site)))
    end = server.end_of(claim)
    assert end["outcome"] == "ok", end["log_tail"]
    lines = [line for line in end["log_tail"].splitlines() if "Read-only" not in line]
    assert lines[0] == "known"
    assert lines[1:3] == ["[secret FILE]", "[secret FILE]"]
    assert lines[3:] == ["kept", "[secret GO_PASSWORD]"]
    assert end["manifest"]["files"] == 1
