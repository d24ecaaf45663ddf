"""Jobs in containers of the real bubblewrap: what they see, what they leave, how they are stopped."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.pilot.conftest import RunningPilot
from tests.unit.pilot.containers.images import LayoutFolder, layer_of, unpacked
from tests.unit.pilot.fake_server import FakeServer, until
from tests.unit.pilot.process.test_payload import alive, written_pid

from forestay_pilot.containers.runtimes import ContainerRuntimes, find_bubblewrap
from forestay_pilot.process.payload import Surroundings

StartPilot = Callable[..., RunningPilot]
BWRAP = find_bubblewrap("bwrap")
pytestmark = pytest.mark.skipif(
    not BWRAP, reason="bubblewrap cannot set up containers here (apt-get install bubblewrap)"
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("image"))


def surroundings(tmp_path: Path, **changes: object) -> Surroundings:
    runtimes = ContainerRuntimes(bubblewrap=BWRAP, images=str(tmp_path / "images"), **changes)  # type: ignore[arg-type]
    return Surroundings(grace=5.0, containers=runtimes)


def test_a_job_sees_its_image_its_folder_and_nothing_else(
    server: FakeServer, pilot: StartPilot, tmp_path: Path, image: Path
) -> None:
    (tmp_path / "secret").write_text("of the host")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("shared\n")
    script = (
        f"cat /etc/os-release /var/marker {tmp_path}/data/file; echo {{sample}} $MODE $PATH; pwd; ls {tmp_path}; ls -a ~;"
        "touch /usr/x; touch /x; touch /tmp/here && echo tmp; echo made > result; : > /dev/null && echo dev"
    )
    claim = server.submit("sh", "-c", script, environment={"MODE": "fast"}, outputs=["*"])
    claim["specification"]["container"] = str(image)
    claim["parameters"] = {"sample": "A 1"}
    before = sorted(path for path in image.rglob("*"))
    pilot(surroundings=surroundings(tmp_path, mounts=(f"{tmp_path}/data",)))
    end = server.end_of(claim)
    assert end["outcome"] == "ok", end["log_tail"]
    lines = end["log_tail"].splitlines()
    assert lines[:3] == ["ID=image-of-a-test", "of the image", "shared"]
    assert lines[3].startswith("A 1 fast /usr/local/sbin:")
    folder = lines[4]
    assert folder.startswith(str(tmp_path / "work"))
    assert "secret" not in lines
    assert [word for word in lines if "Read-only file system" in word], lines
    assert "tmp" in lines
    assert "dev" in lines
    assert end["manifest"]["files"] == 1, "the folder for temporary files is no output"
    assert sorted(path for path in image.rglob("*")) == before, (
        "nothing is written into an image, not even a mount point"
    )
    assert "image" not in end, "a folder has no digest"
    assert end["staging"][0]["kind"] == "image"


def test_an_image_of_a_layout_is_unpacked_once_and_its_digest_is_told(
    server: FakeServer, pilot: StartPilot, tmp_path: Path, image: Path
) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    digest = layout.image("v1", [layer_of(image)], env=("GREETING=hello", "PATH=/usr/bin"))
    claims = [server.submit("sh", "-c", "echo $GREETING $PATH") for _ in range(4)]
    for claim in claims:
        claim["specification"]["container"] = f"oci:{layout.folder}:v1"
    pilot(slots=4, resources={"cpus": 8}, surroundings=surroundings(tmp_path))
    ends = [server.end_of(claim) for claim in claims]
    assert [end["log_tail"] for end in ends] == ["hello /usr/bin\n"] * 4, ends
    assert {end["image"] for end in ends} == {digest}
    assert sorted(end["staging"][0]["from"] for end in ends) == ["file", "host", "host", "host"]
    assert all(end["staging"][0]["file"] == digest for end in ends)


def test_a_stop_leaves_a_container_its_grace_and_then_nothing(
    server: FakeServer, pilot: StartPilot, tmp_path: Path, image: Path
) -> None:
    script = (
        "trap 'echo checkpoint > kept; echo asked; exit 3' TERM; setsid sleep 300 & echo $! > far; sleep 300 & wait"
    )
    claim = server.submit("sh", "-c", script)
    claim["specification"]["container"] = str(image)
    running = pilot(surroundings=surroundings(tmp_path))
    far: list[Path] = []

    def started() -> bool:
        far[:] = [path for path in (tmp_path / "work").glob("pilot-*/jobs/*/far") if path.read_text().strip()]
        return bool(far)

    until(started, "the payload's start")
    stray = written_pid(far[0])
    server.order("cancel", {"claim": claim["claim"]})
    end = server.end_of(claim)
    assert end["reason"] == "cancelled"
    assert "asked" in end["log_tail"], end["log_tail"]
    until(lambda: not alive(stray), "the end of what had left the container's session")
    assert running.end() == 0


def test_the_signal_that_ended_a_payload_is_its_exit_code(
    server: FakeServer, pilot: StartPilot, tmp_path: Path, image: Path
) -> None:
    claim = server.submit("sh", "-c", f"kill -{signal.SIGSEGV.value} $$")
    claim["specification"]["container"] = str(image)
    pilot(surroundings=surroundings(tmp_path))
    end = server.end_of(claim)
    assert (end["outcome"], end["reason"], end["exit_code"]) == ("failure", "exit", 128 + signal.SIGSEGV)


def test_devices_are_seen_by_jobs_that_ask_for_them(
    server: FakeServer, pilot: StartPilot, tmp_path: Path, image: Path
) -> None:
    """The device is a stand-in: what is tested is that it is bound, and for whom."""
    device = next(path for path in ("/dev/full", "/dev/random") if os.path.exists(path))
    asking = server.submit("sh", "-c", f"test -c {device}.d/0 && echo seen", resources={"gpus": 1})
    other = server.submit("sh", "-c", f"test -c {device}.d/0 || echo none")
    folder = tmp_path / "dev"
    folder.mkdir()
    if os.getuid() or shutil.which("mknod") is None:
        pytest.skip("making a device needs root")
    os.mknod(folder / "gpu0", 0o600 | 0o020000, os.makedev(1, 7))
    for claim in (asking, other):
        claim["specification"]["command"][-1] = claim["specification"]["command"][-1].replace(
            f"{device}.d/0", str(folder / "gpu0")
        )
        claim["specification"]["container"] = str(image)
    pilot(resources={"cpus": 4, "gpus": 1}, surroundings=surroundings(tmp_path, devices=(f"{folder}/gpu*",)))
    assert server.end_of(asking)["log_tail"] == "seen\n"
    assert server.end_of(other)["log_tail"] == "none\n"


def test_what_cannot_be_run_here_ends_at_once(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    layout.image("arm", [], architecture="s390x")
    layout.image("broken", [b"no archive"])
    wanted = {
        "debian:12": ("start-failed", "no-container"),
        str(tmp_path / "nothing"): ("image-failed", "not-found"),
        f"oci:{layout.folder}:v9": ("image-failed", "not-found"),
        f"oci:{tmp_path}/nowhere": ("image-failed", "not-found"),
        f"oci:{layout.folder}:arm": ("image-failed", "platform"),
        f"oci:{layout.folder}:broken": ("image-failed", "corrupt"),
        "ftp://images/x": ("image-failed", "not-found"),
    }
    claims = {}
    for name in wanted:
        claims[name] = server.submit("touch", str(tmp_path / "outside"))
        claims[name]["specification"]["container"] = name
    pilot(surroundings=surroundings(tmp_path))
    for name, expected in wanted.items():
        end = server.end_of(claims[name])
        assert (end["outcome"], end["reason"], end["error"]) == ("failure", *expected), end["log_tail"]
        assert end["stage"] == "staging-in"
        assert name in end["log_tail"]
    assert not (tmp_path / "outside").exists()
