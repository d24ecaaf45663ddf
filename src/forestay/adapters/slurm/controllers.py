"""The hosts of Slurm's controllers and whether they can be reached: this distinguishes a network failure from a scheduler failure.

sbatch reports the same for both. So after it could not connect, the controllers' ports are tried: a refused connection proves that the host is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from forestay.domain.sites.batch import SubmitRefusal

PLACES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")
_LINE = re.compile(
    r"^\s*(SlurmctldHost|SlurmctldAddr|ControlMachine|ControlAddr|SlurmctldPort|Include)\s*[= ]\s*(\S+)", re.IGNORECASE
)
_HOST = re.compile(r"^([^(]+)(?:\(([^)]+)\))?$")
_DEPTH = 3


def controllers(environment: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Host and port of each controller from Slurm's own configuration; empty when it cannot be read."""
    places = [environment["SLURM_CONF"]] if environment.get("SLURM_CONF") else list(PLACES)
    for place in places:
        results = _read(Path(place), 0)
        hosts = [value for key, value in results if key in ("slurmctldhost", "controlmachine")]
        addresses = [value for key, value in results if key in ("slurmctldaddr", "controladdr")]
        ports = [value for key, value in results if key == "slurmctldport"]
        port = int(re.split(r"\D", ports[-1])[0] or 6817) if ports else 6817
        names = addresses or [_address(host) for host in hosts]
        if names:
            return tuple((name, port) for name in names)
    return ()


def _address(host: str) -> str:
    match = _HOST.match(host)
    return (match[2] or match[1]) if match else host


def _read(path: Path, depth: int) -> list[tuple[str, str]]:
    result: list[tuple[str, str]] = []
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return result
    for line in lines:
        match = _LINE.match(line.split("#", 1)[0])
        if match is None:
            continue
        key, value = match[1].lower(), match[2]
        if key != "include":
            result.append((key, value))
        elif depth < _DEPTH:
            result += _read(path.parent / value, depth + 1)
    return result


async def why_unreached(places: Sequence[tuple[str, int]], *, seconds: float = 3.0) -> SubmitRefusal:
    """Which of the two failed. If any controller's host answers in any way, the scheduler is down; if none does, the network or all hosts are."""
    if not places:
        return SubmitRefusal.SCHEDULER_DOWN
    answers = await asyncio.gather(*(_answers(host, port, seconds) for host, port in places))
    return SubmitRefusal.SCHEDULER_DOWN if any(answers) else SubmitRefusal.NETWORK_DOWN


async def _answers(host: str, port: int, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except OSError:  # no route, no name, no answer in time
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
