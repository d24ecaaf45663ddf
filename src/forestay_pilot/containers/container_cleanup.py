"""Removes what remains of a container when its command, or its pilot, has ended."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from forestay_pilot.containers.container_command import container_name, leftover_groups
from forestay_pilot.containers.image_pull import site_environment
from forestay_pilot.containers.image_reference import PODMAN

if TYPE_CHECKING:
    from forestay_pilot.containers.image_store import StagedImage
    from forestay_pilot.process.payload import Payload, PayloadOutcome

log = logging.getLogger("forestay_pilot")

_RUNTIME_FAILED = 125
"""The exit code of Podman's own failures."""
_LONGEST = 60.0
_TRIES, _PAUSE = 5, 1.0


def after_container(image: StagedImage, payload: Payload, outcome: PayloadOutcome) -> None:
    """Clear away what the runtime did not clear itself."""
    if image.runtime != PODMAN:
        return
    if outcome.exit_code != 0 or outcome.stopped_for:  # one that is stopped while it starts exits with 0 and leaves it
        remove_containers(image.program, [payload.claim])
    if outcome.exit_code == _RUNTIME_FAILED:
        image.forget()  # it may have been removed behind our back
    for folder in leftover_groups(payload.group):
        for inner, names, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                for name in names:
                    os.rmdir(os.path.join(inner, name))
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def remove_containers(program: str, claims: Iterable[str]) -> None:
    """Remove Podman's containers of claims whose processes are gone; a missing container is not an error."""
    names = [container_name(claim) for claim in claims]
    if not program or not names:
        return
    try:
        for _ in range(_TRIES):
            removed = _podman(program, "rm", "--force", "--ignore", "--time", "0", *names)
            # A command of Podman's own that was killed meanwhile may have left one in the middle of its end.
            names = [name for name in names if _podman(program, "container", "exists", name).returncode != 1]
            if not names:
                return
            time.sleep(_PAUSE)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("containers of Podman could not be removed: %s", error)
        return
    log.warning("containers of Podman could not be removed: %s", removed.stderr.decode(errors="replace")[-500:])


def _podman(program: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - Podman itself
        [program, *words],
        env=site_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST, check=False,
    )  # fmt: skip
