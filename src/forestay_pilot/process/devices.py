"""The accelerators of this machine as named units: which exist, which are free, which a payload may use.

Devices are found by the vendors' own programs, as far as the batch system has given them to this pilot, or named by ``--device``: stand-ins,
for kinds of devices that nothing here knows. A job that asks for some gets the names of its own in the vendors' variables, and one
that asks for none gets empty ones.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple

from forestay_pilot.clock import steady
from forestay_pilot.process.device_locks import VARIABLE, held_by_strays, is_held

log = logging.getLogger("forestay_pilot")

NVIDIA = "nvidia"
AMD = "amd"
STAND_IN = "stand-in"
VARIABLES = {NVIDIA: "CUDA_VISIBLE_DEVICES", AMD: "ROCR_VISIBLE_DEVICES", STAND_IN: ""}
_GIVEN = {NVIDIA: ("CUDA_VISIBLE_DEVICES",), AMD: ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}")
_MIG = re.compile(r"^\s+MIG\s+(\S+).*\(UUID:\s*(\S+)\)")
_GPU = re.compile(r"^GPU\s+(\d+):\s*(.*?)\s*\(UUID:\s*(\S+)\)")
_SECONDS = 20.0
_STRAYS_KNOWN = 2.0  # seconds for which it is believed which processes have devices in their environment


class Device(NamedTuple):
    """One unit: a whole accelerator, or a part of one that its vendor's tools give a name."""

    name: str
    vendor: str = STAND_IN
    model: str = ""
    memory: int = 0  # bytes; 0 when unknown

    def to_dict(self) -> dict[str, Any]:
        """The form that is sent to the servers."""
        return {"name": self.name, "vendor": self.vendor, "model": self.model, "memory": self.memory}


def named_device(text: str) -> Device:
    """Read ``NAME[,model=M][,vendor=V][,memory=BYTES]``; raises ValueError."""
    name, *rest = text.split(",")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a device")
    facts = dict(fact.partition("=")[::2] for fact in rest)
    unknown = facts.keys() - {"model", "vendor", "memory"}
    if unknown:
        raise ValueError(f"a device has model, vendor and memory, not {min(unknown)}")
    vendor = facts.get("vendor", STAND_IN)
    if vendor not in VARIABLES:
        raise ValueError(f"the vendor of a device is one of {', '.join(VARIABLES)}, not {vendor}")
    try:
        memory = int(facts.get("memory", 0))
    except ValueError as error:
        raise ValueError(f"the memory of device {name} is not a number of bytes") from error
    return Device(name, vendor, facts.get("model", "").strip()[:100], max(0, memory))


def named_devices(texts: Iterable[str]) -> list[Device]:
    """Read several, with names that differ; raises ValueError."""
    devices = [named_device(text) for text in texts]
    names = [device.name for device in devices]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"device {min(twice)} is named twice")
    return devices


def _program(words: list[str]) -> str:
    """The output of a program; empty when it does not exist or fails."""
    path = shutil.which(words[0])
    if path is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 - the vendor's own program, with fixed words
            [path, *words[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("the devices of this machine are not known: %s", error)
        return ""
    return done.stdout.decode(errors="replace")


def found_devices(
    variables: Mapping[str, str] | None = None, ask: Callable[[list[str]], str] = _program
) -> list[Device]:
    """The devices of this machine that this pilot may use."""
    known = os.environ if variables is None else variables
    return _of_nvidia(known, ask) + _of_amd(known, ask)


def _given(known: Mapping[str, str], vendor: str) -> list[str] | None:
    """The devices of a vendor that the batch system assigned to this pilot; None where it does not say."""
    for name in _GIVEN[vendor]:
        if name in known:
            return [word.strip() for word in known[name].split(",") if word.strip() not in ("", "-1", "NoDevFiles")]
    return None


def _of_nvidia(known: Mapping[str, str], ask: Callable[[list[str]], str]) -> list[Device]:
    memory: dict[str, int] = {}
    listed = ask(["nvidia-smi", "-L"])
    if listed:
        table = ask(["nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"])
        for line in table.splitlines():
            uuid, _, mebibytes = (word.strip() for word in line.partition(","))
            if mebibytes.isdigit():
                memory[uuid] = int(mebibytes) << 20
    devices: list[tuple[str, Device]] = []
    index, whole = "", Device("")
    for line in listed.splitlines():
        gpu, part = _GPU.match(line), _MIG.match(line)
        if gpu:
            index, uuid = gpu.group(1), gpu.group(3)
            whole = Device(uuid, NVIDIA, gpu.group(2)[:100], memory.get(uuid, 0))
            devices.append((index, whole))
        elif part and whole.name:
            # A device that is cut in parts can be used by its parts alone.
            devices = [(number, device) for number, device in devices if device != whole]
            devices.append((index, Device(part.group(2), NVIDIA, f"{whole.model} MIG {part.group(1)}"[:100])))
    return _only(devices, _given(known, NVIDIA))


def _of_amd(known: Mapping[str, str], ask: Callable[[list[str]], str]) -> list[Device]:
    text = ask(["rocm-smi", "--showuniqueid", "--showproductname", "--showmeminfo", "vram", "--json"])
    try:
        cards = json.loads(text) if text else {}
    except ValueError:
        return []
    devices: list[tuple[str, Device]] = []
    for card, facts in sorted(cards.items()) if isinstance(cards, dict) else []:
        index = card[len("card") :]
        if not card.startswith("card") or not index.isdigit() or not isinstance(facts, dict):
            continue
        unique = str(facts.get("Unique ID", "")).lower()
        unique = unique[2:] if unique.startswith("0x") else unique
        name = f"GPU-{unique}" if re.fullmatch(r"[0-9a-f]+", unique) else index
        vram = str(facts.get("VRAM Total Memory (B)", ""))
        model = str(facts.get("Card series") or facts.get("Card Series") or facts.get("Card model") or "")
        devices.append((index, Device(name, AMD, model[:100], int(vram) if vram.isdigit() else 0)))
    return _only(devices, _given(known, AMD))


def _only(devices: list[tuple[str, Device]], given: list[str] | None) -> list[Device]:
    """Of a vendor's devices those that were given, by number or by (the beginning of) a name."""
    return [
        device
        for index, device in devices
        if given is None
        or any(word == index or (not word.isdigit() and device.name.startswith(word)) for word in given)
    ]


class HostDevices:
    """The devices of one pilot, and which of them its jobs have. Other pilots of the host may have the others."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self.devices = list(devices)
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        self._strays: set[str] = set()
        self._strays_at = -1e9

    def __len__(self) -> int:
        return len(self.devices)

    def free(self) -> int:
        """The number of unused devices: held neither by this pilot's jobs, nor by a neighbour's, nor by processes that an earlier pilot left running."""
        if not self.devices:
            return 0
        with self._lock:
            return len(self._free())

    def take(self, count: int) -> list[Device] | None:
        """Lock this many free devices; None where there are not enough."""
        with self._lock:
            free = self._free() if count else []
            if len(free) < count:
                return None
            taken = free[:count]
            self._taken.update(device.name for device in taken)
            return taken

    def give_back(self, devices: Iterable[Device]) -> None:
        """A payload that had them is over."""
        with self._lock:
            self._taken.difference_update(device.name for device in devices)

    def environment(self, devices: Iterable[Device]) -> dict[str, str]:
        """What makes a payload see these devices of the machine, and no others."""
        named = list(devices)
        vendors = {device.vendor for device in self.devices}
        variables = {
            VARIABLES[vendor]: ",".join(device.name for device in named if device.vendor == vendor)
            for vendor in sorted(vendors)
            if VARIABLES[vendor]
        }
        return {**variables, VARIABLE: ",".join(device.name for device in named)} if self.devices else {}

    def _free(self) -> list[Device]:
        if steady() - self._strays_at > _STRAYS_KNOWN:
            # What a living payload has is held besides, and free as soon as it ends.
            found = held_by_strays() - self._taken
            self._strays, self._strays_at = {name for name in found if not is_held(name)}, steady()
        return [
            device
            for device in self.devices
            if device.name not in self._taken and device.name not in self._strays and not is_held(device.name)
        ]
