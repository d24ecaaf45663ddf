"""Which container runtimes this machine has, and what the operator allows containers to see of it."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forestay_pilot.containers.image_reference import APPTAINER, BUBBLEWRAP, PODMAN

if TYPE_CHECKING:
    from forestay_pilot.containers.image_reference import ImageReference

OFF = "off"
_DEVICES = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm*", "/dev/nvidia-modeset", "/dev/nvidia-caps/*", "/dev/kfd", "/dev/dri/renderD*")  # fmt: skip


class NoContainerError(Exception):
    """The claim needs a container, and this machine cannot run it."""


@dataclass(frozen=True)
class ContainerRuntimes:
    """The runtimes of one pilot."""

    apptainer: str = ""  # the program; empty for none
    podman: str = ""
    bubblewrap: str = ""
    images: str = ""  # the folder in which images are kept for all pilots of the host
    space: int = 50 * 1000**3  # bytes that they may take
    mounts: tuple[str, ...] = ()  # folders that every container sees: PATH, or PATH:rw
    devices: tuple[str, ...] = _DEVICES  # the paths of devices for jobs that request GPUs

    @property
    def programs(self) -> dict[str, str]:
        """The program of each runtime that is here."""
        programs = {APPTAINER: self.apptainer, PODMAN: self.podman, BUBBLEWRAP: self.bubblewrap}
        return {name: program for name, program in programs.items() if program}

    @property
    def names(self) -> list[str]:
        """The names of the runtimes as reported to the servers."""
        return list(self.programs)

    def choose(self, reference: ImageReference) -> tuple[str, str]:
        """The runtime for an image and its program; raises NoContainerError where there is none."""
        programs = self.programs
        for name in reference.suitable:
            if name in programs:
                return name, programs[name]
        wanted = " or ".join(reference.suitable)
        others = f"; it has {', '.join(programs)}, which cannot run such an image" if programs else ""
        raise NoContainerError(
            f"it needs the container {reference.text}, and there is no {wanted} on this machine{others}"
        )

    def devices_for(self, gpus: int) -> list[str]:
        """The devices visible to a job that requests this many GPUs; its variables say which of them it may use."""
        if gpus <= 0:
            return []
        return sorted({path for pattern in self.devices for path in glob.glob(pattern)})


def find_program(name: str) -> str:
    """The program of a runtime, by its name or path; empty where there is none, or it is disabled."""
    return "" if name == OFF else shutil.which(name) or ""


def find_bubblewrap(name: str) -> str:
    """Bubblewrap, if it can set up anything here: many systems forbid namespaces to ordinary users."""
    program = find_program(name)
    if not program:
        return ""
    try:
        words = [program, "--ro-bind", "/", "/", "--dev", "/dev", "true"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=20)  # noqa: S603 - bubblewrap itself
    except (OSError, subprocess.SubprocessError):
        return ""
    return program if done.returncode == 0 else ""


def read_mount(text: str) -> tuple[str, bool]:
    """A folder that containers see, and whether they may write to it; raises ValueError."""
    path, _, mode = text.partition(":")
    if not path.startswith("/") or mode not in ("", "ro", "rw"):
        raise ValueError(f"{text!r} is not a mount; expected PATH, PATH:ro or PATH:rw")
    return os.path.normpath(path), mode == "rw"
