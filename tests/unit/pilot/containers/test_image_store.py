"""Images on a host: brought once, shared, looked up anew, removed when space is needed."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest
from tests.unit.pilot.containers.images import LayoutFolder, layer, member

from forestay_pilot.containers import image_store
from forestay_pilot.containers.container_command import VARIABLES, ContainerRequest, in_container
from forestay_pilot.containers.image_error import ImageError, read_error
from forestay_pilot.containers.image_store import ImageStore, StagedImage
from forestay_pilot.containers.runtimes import ContainerRuntimes, NoContainerError, read_mount
from forestay_pilot.staging.transfer import StoppedError

NEVER = lambda: False  # noqa: E731


def fake_podman(folder: Path) -> str:
    """A stand-in for Podman: it counts its pulls, and knows one image of each name."""
    program = folder / "podman"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys, time\n"
        f"with open({str(folder / 'called')!r}, 'a') as sink: sink.write(' '.join(sys.argv[1:]) + '\\n')\n"
        "if sys.argv[1] == 'pull':\n"
        "    time.sleep(0.2)\n"
        "    if 'missing' in sys.argv[-1]: sys.exit('Error: reading manifest v9 in x: manifest unknown')\n"
        "    print('id-' + sys.argv[-1].rpartition('/')[2])\n"
        f"elif sys.argv[1] == 'image': print('sha256:{'b' * 64} {image_store_machine()} 1000')\n"
    )
    program.chmod(0o700)
    return str(program)


def image_store_machine() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def pulls(folder: Path) -> list[str]:
    return [line for line in (folder / "called").read_text().splitlines() if line.startswith("pull")]


def test_of_all_who_want_an_image_one_brings_it(tmp_path: Path) -> None:
    stores = [ImageStore(ContainerRuntimes(podman=fake_podman(tmp_path), images=str(tmp_path / "i"))) for _ in range(2)]
    images: list[StagedImage] = []
    threads = [
        threading.Thread(target=lambda store=store: images.append(store.obtain("tool:1", NEVER)))
        for store in stores
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(image.origin for image in images) == ["host"] * 5 + ["registry"]
    assert {image.digest for image in images} == {f"sha256:{'b' * 64}"}
    assert len(pulls(tmp_path)) == 1
    for image in images:
        image.release()


def test_a_tag_is_looked_up_again_and_a_digest_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ImageStore(ContainerRuntimes(podman=fake_podman(tmp_path), images=str(tmp_path / "i")))
    monkeypatch.setattr(image_store, "FRESH", 1e9)
    for name in ("tool:1", f"tool:1@sha256:{'c' * 64}"):
        store.obtain(name, NEVER).release()
    monkeypatch.setattr(image_store, "FRESH", 0.0)
    pinned = store.obtain(f"tool:1@sha256:{'c' * 64}", NEVER)
    assert (pinned.origin, pinned.digest) == ("host", f"sha256:{'c' * 64}")
    assert pulls(tmp_path)[1] == f"pull --quiet docker://tool@sha256:{'c' * 64}", (
        "the tools take no tag beside a digest"
    )
    assert len(pulls(tmp_path)) == 2


def test_what_was_removed_behind_our_back_is_brought_again(tmp_path: Path) -> None:
    store = ImageStore(ContainerRuntimes(podman=fake_podman(tmp_path), images=str(tmp_path / "i")))
    image = store.obtain("tool:1", NEVER)
    image.forget()
    image.release()
    assert store.obtain("tool:1", NEVER).origin == "registry"


def test_a_failed_pull_tells_why_and_is_tried_by_the_next_job(tmp_path: Path) -> None:
    store = ImageStore(ContainerRuntimes(podman=fake_podman(tmp_path), images=str(tmp_path / "i")))
    for _ in range(2):
        with pytest.raises(ImageError, match="manifest unknown") as caught:
            store.obtain("missing:9", NEVER)
        assert caught.value.error == "not-found"
    assert len(pulls(tmp_path)) == 2


def test_a_stop_ends_a_pull(tmp_path: Path) -> None:
    store = ImageStore(ContainerRuntimes(podman=fake_podman(tmp_path), images=str(tmp_path / "i")))
    with pytest.raises(StoppedError):
        store.obtain("tool:1", lambda: True)


def test_images_that_were_used_longest_ago_make_room(tmp_path: Path) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    for name in ("a", "b", "c"):
        layout.image(name, [layer((member(name), b"x" * 1000))])
    store = ImageStore(ContainerRuntimes(bubblewrap="bwrap", images=str(tmp_path / "i"), space=2500))
    held = store.obtain(f"oci:{layout.folder}:a", NEVER)
    store.obtain(f"oci:{layout.folder}:b", NEVER).release()
    store.obtain(f"oci:{layout.folder}:c", NEVER).release()
    roots = sorted(
        path.name for folder in (tmp_path / "i").glob("*/root") for path in folder.iterdir() if path.is_file()
    )
    assert roots == ["a", "c"], "a is in use, and c was just brought"
    held.release()


def test_nothing_is_left_of_an_image_that_is_too_large(tmp_path: Path) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    layout.image("v1", [layer((member("a"), b"1"), (member("b"), bytes(1 << 20)))])
    area = tmp_path / "i"
    store = ImageStore(ContainerRuntimes(bubblewrap="bwrap", images=str(area), space=100_000))
    with pytest.raises(ImageError, match="takes more than the 100000 bytes"):
        store.obtain(f"oci:{layout.folder}:v1", NEVER)
    assert [path.name for path in area.rglob("*") if path.is_file()] == ["lock"]


def test_a_layout_that_was_written_anew_is_unpacked_anew(tmp_path: Path) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    first = layout.image("v1", [layer((member("a"), b"1"))])
    store = ImageStore(ContainerRuntimes(bubblewrap="bwrap", images=str(tmp_path / "i")))
    image = store.obtain(f"oci:{layout.folder}:v1", NEVER)
    assert image.digest == first
    image.release()
    layout.manifests.clear()
    second = layout.image("v1", [layer((member("a"), b"2 is longer"))])
    image = store.obtain(f"oci:{layout.folder}:v1", NEVER)
    assert (image.digest, image.origin) == (second, "file")
    image.release()


def test_no_runtime_says_what_is_there(tmp_path: Path) -> None:
    store = ImageStore(ContainerRuntimes(bubblewrap="bwrap", images=str(tmp_path / "i")))
    with pytest.raises(NoContainerError, match="no apptainer or podman on this machine; it has bubblewrap"):
        store.obtain("debian:12", NEVER)


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("Error: initializing source docker://r/x:2: reading manifest 2 in r/x: manifest unknown: manifest unknown", "not-found"),
        ("Error: initializing source docker://r/x:2: Requesting bear token: invalid status code from registry 403 (Forbidden)", "denied"),
        ("Error: initializing source docker://r/x:2: reading manifest 2 in r/x: unauthorized: authentication required", "denied"),
        ("Error: initializing source docker://r/x: pinging container registry r: Get \"https://r/v2/\": dial tcp: lookup r: no such host", "network"),
        ("FATAL:   While making image from oci registry: error fetching image to cache: failed to get checksum for docker://r/x: reading manifest 9 in r/x: manifest unknown", "not-found"),
        ("FATAL:   While making image from oci registry: error fetching image to cache: while building SIF from layers: conveyor failed to get: no child with platform linux/amd64 in index r/x:list", "platform"),
        ("Error: choosing an image from manifest list docker://r/x: no image found in image index for architecture amd64, variant \"\", OS linux", "platform"),
        ("Error: writing blob: storing blob to file \"/var/tmp/storage1\": write /var/tmp/storage1: no space left on device", "ENOSPC"),
        ("FATAL:   While making image from oci registry: toomanyrequests: You have reached your pull rate limit.", "network"),
        ("FATAL:   something that nobody has seen", "runtime"),
        ("", "runtime"),
    ],
)  # fmt: skip
def test_what_the_tools_say_has_a_meaning(output: str, error: str) -> None:
    assert read_error("r/x", output).error == error


def request_for(tmp_path: Path, runtime: str, **changes: object) -> ContainerRequest:
    image = StagedImage("tool:1", runtime, f"/usr/bin/{runtime}", "the-image")
    own = {"PATH": "/outside/bin", "HOME": "/home/ann"}
    environment = {**own, "SECRET": "s3cret", "FORESTAY_CLAIM": "c1"}
    fields: dict[str, object] = {"claim": "c1", "own": own, "mounts": ("/data", "/scratch:rw")}
    return ContainerRequest(image, ["prog", "a b"], environment, str(tmp_path), **{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("runtime", ["apptainer", "podman"])
def test_no_variable_is_on_a_command_line(tmp_path: Path, runtime: str) -> None:
    words, environment = in_container(request_for(tmp_path, runtime))
    assert "s3cret" not in " ".join(words)
    assert words[-3:] == ["the-image", "prog", "a b"]
    assert environment["FORESTAY_CLAIM"] == "c1"
    assert any(word.startswith("/data:/data:ro") for word in words)
    assert any(word.startswith("/scratch:/scratch:rw") for word in words)
    passed = (tmp_path / VARIABLES).read_text() if runtime == "podman" else str(environment)
    assert "s3cret" in passed
    assert "/outside/bin" not in str([name for name in environment if name.endswith("ENV_PATH")])
    if runtime == "podman":
        assert "SECRET" not in environment
        assert (tmp_path / VARIABLES).stat().st_mode & 0o777 == 0o600


def test_a_variable_cannot_lead_podman_astray(tmp_path: Path) -> None:
    base = request_for(tmp_path, "podman").environment
    words, environment = in_container(request_for(tmp_path, "podman"))
    assert "--env" not in words
    lines = {**base, "TEXT": "two\nlines", "CONTAINERS_CONF": "/mine"}
    image = StagedImage("tool:1", "podman", "/usr/bin/podman", "the-image")
    request = ContainerRequest(image, ["prog"], lines, str(tmp_path), {}, "c1")
    words, environment = in_container(request)
    assert words[words.index("--env") + 1] == "TEXT"
    assert environment["TEXT"] == "two\nlines"
    assert environment.get("CONTAINERS_CONF") != "/mine"
    with pytest.raises(ValueError, match="REGISTRY_AUTH_FILE"):
        in_container(
            ContainerRequest(image, ["prog"], {**lines, "REGISTRY_AUTH_FILE": "a\nb"}, str(tmp_path), {}, "c1")
        )


@pytest.mark.parametrize("runtime", ["apptainer", "podman"])
def test_devices_of_a_job_are_given_to_the_runtime(tmp_path: Path, runtime: str) -> None:
    words, _ = in_container(request_for(tmp_path, runtime, devices=["/dev/nvidia0"]))
    assert "--nv" in words if runtime == "apptainer" else words[words.index("--device") + 1] == "/dev/nvidia0"


def test_mounts_are_read_only_unless_they_say_otherwise() -> None:
    assert read_mount("/data") == ("/data", False)
    assert read_mount("/data/:rw") == ("/data", True)
    for wrong in ("data", "/data:x", ""):
        with pytest.raises(ValueError, match="mount"):
            read_mount(wrong)


def test_a_tag_is_not_asked_for_again_while_its_image_is_in_use(tmp_path: Path) -> None:
    """Who waited to have the image alone would wait for the jobs that run in it."""
    store = ImageStore(ContainerRuntimes(podman=fake_podman(tmp_path), images=str(tmp_path / "i")))
    held = store.obtain("tool:1", NEVER)
    (about,) = (tmp_path / "i").glob(f"*/{image_store._ABOUT}")
    known = json.loads(about.read_text())
    about.write_text(json.dumps({**known, "at": known["at"] - 2 * image_store.FRESH}))
    store.obtain("tool:1", NEVER).release()
    assert len(pulls(tmp_path)) == 1
    held.release()
    store.obtain("tool:1", NEVER).release()
    assert len(pulls(tmp_path)) == 2
