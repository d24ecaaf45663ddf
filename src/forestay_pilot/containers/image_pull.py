"""Pulls images by Podman's and Apptainer's own commands, with the site's registries, mirrors, proxies and credentials."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Callable

from forestay_pilot.containers.image_error import NETWORK, PLATFORM, RUNTIME, ImageError, read_error
from forestay_pilot.containers.image_reference import ARCHIVE, LAYOUT, REGISTRY
from forestay_pilot.containers.oci_layout import machine
from forestay_pilot.process.process_tree import OWN_SESSIONS
from forestay_pilot.staging.transfer import StoppedError

if TYPE_CHECKING:
    from forestay_pilot.containers.image_reference import ImageReference

LONGEST = 3600.0
"""Seconds that an image may take to come."""
_LOOK = 0.05
_MOST_OUTPUT = 65_536


def site_environment() -> dict[str, str]:
    """What the tools may see of this pilot's environment: what a site sets for them, and nothing of Forestay's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}


def pull_podman(program: str, reference: ImageReference, stopped: Callable[[], bool]) -> tuple[str, str, int]:
    """Bring an image into Podman's store; gives its id, its digest and its bytes."""
    source = f"docker://{reference.place}" if reference.kind == REGISTRY else reference.text
    identity = _output([program, "pull", "--quiet", source], reference, stopped).split()
    if not identity:
        raise ImageError(RUNTIME, f"the image {reference.text}: podman pull named no image")
    words = ["image", "inspect", "--format", "{{.Digest}} {{.Architecture}} {{.Size}}", identity[-1]]
    digest, architecture, size = _output([program, *words], reference, stopped).split()
    if architecture != machine():
        raise ImageError(PLATFORM, f"the image {reference.text} is for {architecture}, and this host is {machine()}")
    return identity[-1], digest, int(size)


def remove_podman(program: str, identity: str) -> bool:
    """Take an image out of Podman's store; false if it is used, or cannot be removed."""
    if not program:
        return False
    words = [program, "image", "rm", identity]
    try:
        done = subprocess.run(words, env=site_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=60)  # noqa: S603 - Podman itself
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode in (0, 1)  # 1: there is none


def pull_sif(program: str, reference: ImageReference, path: str, stopped: Callable[[], bool]) -> None:
    """Bring an image as a file of Apptainer."""
    if reference.kind in (ARCHIVE, LAYOUT):
        words = [program, "build", "--force", path, reference.text]
    else:
        scheme = reference.text.partition("://")[0] if "://" in reference.text else "docker"
        words = [program, "pull", "--force", path, f"{scheme}://{reference.place}"]
    _output(words, reference, stopped)
    found = sif_architecture(path)
    if found and found != machine():
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise ImageError(PLATFORM, f"the image {reference.text} is for {found}, and this host is {machine()}")


_SIF_MAGIC = b"SIF_MAGIC"
_SIF_MACHINES = {b"01": "386", b"02": "amd64", b"03": "arm", b"04": "arm64", b"05": "ppc64", b"06": "ppc64le"}


def sif_architecture(path: str) -> str:
    """The architecture that the header of a SIF file names; empty where it names none."""
    try:
        with open(path, "rb") as source:
            header = source.read(64)
    except OSError:
        return ""
    if header[32:41] != _SIF_MAGIC:
        return ""
    # After the magic word of ten bytes and the version of three.
    return _SIF_MACHINES.get(header[45:47], "")


def _output(words: list[str], reference: ImageReference, stopped: Callable[[], bool]) -> str:
    """What a command prints. Raises ImageError with its words, and StoppedError; then it is ended with all below it."""
    until = time.monotonic() + LONGEST
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            process = OWN_SESSIONS.start(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=site_environment(), cwd="/"
            )
        except OSError as error:
            raise ImageError(RUNTIME, f"the image {reference.text}: {words[0]} cannot be started: {error}") from error
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(_LOOK)
                break
            late = time.monotonic() > until
            if late or stopped():
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if late:
                    raise ImageError(NETWORK, f"the image {reference.text} did not come in {LONGEST:.0f} s")
                raise StoppedError
        out.seek(0)
        errors.seek(0)
        printed = out.read(_MOST_OUTPUT).decode(errors="replace")
        if code != 0:
            raise read_error(reference.text, errors.read(_MOST_OUTPUT).decode(errors="replace") or printed)
        return printed
