"""Which devices of a host are in use: an abstract socket name for each, held by the processes that may use the device.

The name is an address of a Unix socket that is in no file system: every user and every pilot of the host sees it, private folders for
temporary files or not, nothing of it stays behind, and nobody can remove it while somebody holds it. The guard takes it before it
starts a payload, and the payload and all it starts inherit the descriptor. So it is given back by the kernel, when the last of
them is gone: also when pilot, guard and payload were killed at once and something of the payload is still there.

A process that closed what it inherited is known by its variable ``FORESTAY_DEVICES``.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
from collections.abc import Iterable

VARIABLE = "FORESTAY_DEVICES"
"""The names of the devices of a payload, with commas between."""

_ADDRESS = b"\0forestay-device:"
_LONGEST = 80


class DeviceHeldError(OSError):
    """A device is another's."""

    def __init__(self, device: str) -> None:
        super().__init__(errno.EBUSY, f"device {device} is in use by another process of this host")


def lock_device(device: str) -> int | None:
    """The descriptor that locks a device; None while another process holds it."""
    name = device.encode()
    if len(name) > _LONGEST:
        name = hashlib.sha256(name).hexdigest().encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:
        try:
            holder.bind(_ADDRESS + name)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        return holder.detach()


def lock_devices(devices: Iterable[str]) -> list[int]:
    """Hold all of them, or none: DeviceHeldError."""
    names = list(devices)
    held: list[int] = []
    for device in names:
        descriptor = lock_device(device)
        if descriptor is None:
            unlock(held)
            raise DeviceHeldError(device)
        held.append(descriptor)
    strays = held_by_strays() & set(names) if names else set()
    if strays:
        unlock(held)
        raise DeviceHeldError(min(strays))
    return held


def unlock(descriptors: Iterable[int]) -> None:
    """Let go of devices, as far as this process held them."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def is_held(device: str) -> bool:
    """Whether any process holds a device now."""
    descriptor = lock_device(device)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def held_by_strays() -> set[str]:
    """The devices that processes of this user have in their environment, as payloads and what they started do."""
    found: set[str] = set()
    own = os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == own:
            continue
        with contextlib.suppress(OSError):  # another user's, or gone
            with open(f"/proc/{name}/environ", "rb") as source:
                variables = source.read()
            for variable in variables.split(b"\0"):
                key, _, devices = variable.partition(b"=")
                if key == VARIABLE.encode():
                    found.update(device for device in devices.decode(errors="replace").split(",") if device)
    return found
