"""Devices: how they are found, and that no two processes of a host have one of them, whoever is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.pilot.fake_server import FakeServer, until

from forestay_pilot.process.device_locks import (
    DeviceHeldError,
    held_by_strays,
    is_held,
    lock_device,
    lock_devices,
    unlock,
)
from forestay_pilot.process.devices import AMD, NVIDIA, Device, HostDevices, found_devices, named_device, named_devices

NVIDIA_LIST = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb)
  MIG 1g.5gb      Device  0: (UUID: MIG-1111)
  MIG 2g.10gb     Device  1: (UUID: MIG-2222)
"""
NVIDIA_MEMORY = "GPU-aaaa, 40960\nGPU-bbbb, 40960\n"
AMD_CARDS = """{"card0": {"Unique ID": "0x9f3a", "Card series": "MI250", "VRAM Total Memory (B)": "68702699520"},
"card1": {"Unique ID": "N/A", "Card series": "MI250", "VRAM Total Memory (B)": "68702699520"}, "system": {}}"""


def tools(words: list[str]) -> str:
    if words[0] == "rocm-smi":
        return AMD_CARDS
    return NVIDIA_LIST if words[1] == "-L" else NVIDIA_MEMORY


def nothing(_words: list[str]) -> str:
    return ""


def unique() -> str:
    """The names are the host's: two tests at once must not use the same."""
    return f"test-{uuid.uuid4().hex[:12]}"


class TestFinding:
    def test_parts_stand_for_the_device_that_is_cut_in_them(self) -> None:
        nvidia = [device for device in found_devices({}, tools) if device.vendor == NVIDIA]
        assert [device.name for device in nvidia] == ["GPU-aaaa", "MIG-1111", "MIG-2222"]
        assert nvidia[0] == Device("GPU-aaaa", NVIDIA, "NVIDIA A100-SXM4-40GB", 40960 << 20)
        assert nvidia[2].model == "NVIDIA A100-SXM4-40GB MIG 2g.10gb"

    def test_amd_cards_have_their_unique_name_or_their_number(self) -> None:
        amd = [device for device in found_devices({}, tools) if device.vendor == AMD]
        assert amd == [Device("GPU-9f3a", AMD, "MI250", 68702699520), Device("1", AMD, "MI250", 68702699520)]

    @pytest.mark.parametrize(
        ("given", "names"),
        [("1", ["MIG-1111", "MIG-2222"]), ("GPU-aaaa", ["GPU-aaaa"]), ("MIG-2222", ["MIG-2222"]), ("", []), ("-1", [])],
    )
    def test_only_what_the_batch_system_gave(self, given: str, names: list[str]) -> None:
        found = found_devices({"CUDA_VISIBLE_DEVICES": given}, tools)
        assert [device.name for device in found if device.vendor == NVIDIA] == names

    def test_a_machine_without_the_tools_has_none(self) -> None:
        assert found_devices({}, nothing) == []

    @pytest.mark.parametrize("text", ["", "a b", "x,colour=red", "x,vendor=none", "x,memory=much", "-x"])
    def test_a_wrong_name_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"device|name"):
            named_device(text)

    def test_a_name_is_given_once(self) -> None:
        with pytest.raises(ValueError, match="device a is named twice"):
            named_devices(["a", "b", "a,model=T4"])


class TestLocks:
    def test_one_at_a_time(self) -> None:
        first, second = unique(), unique()
        held = lock_devices([first, second])
        assert is_held(first)
        with pytest.raises(DeviceHeldError, match=second):
            lock_devices([unique(), second])
        unlock(held)
        assert not is_held(first)

    def test_a_failed_try_holds_nothing(self) -> None:
        free, taken = unique(), unique()
        descriptor = lock_device(taken)
        assert descriptor is not None
        with pytest.raises(DeviceHeldError):
            lock_devices([free, taken])
        assert not is_held(free)
        os.close(descriptor)

    def test_what_inherited_it_holds_it_after_its_parent(self) -> None:
        device = unique()
        held = lock_devices([device])
        heir = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=held)
        unlock(held)
        assert is_held(device)
        heir.communicate(b"\n")
        assert not is_held(device)

    def test_what_closed_it_is_known_by_its_variable(self) -> None:
        device = unique()
        stray = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "FORESTAY_DEVICES": f"other,{device}"},
        )
        assert stray.stdout is not None
        stray.stdout.readline()
        assert device in held_by_strays()
        with pytest.raises(DeviceHeldError):
            lock_devices([device])
        assert not is_held(device)
        stray.communicate(b"\n")
        unlock(lock_devices([device]))

    def test_a_long_name_fits_an_address(self) -> None:
        first, second = "MIG-" + "a" * 90 + unique(), "MIG-" + "a" * 90 + unique()
        held = lock_devices([first, second])
        assert is_held(first)
        assert is_held(second)
        unlock(held)


class TestHostDevices:
    def test_takes_what_is_nobodys(self) -> None:
        names = [unique() for _ in range(3)]
        own, neighbour = (HostDevices([Device(name) for name in names]) for _ in range(2))
        taken = own.take(2)
        assert taken is not None
        held = lock_devices([device.name for device in taken])
        assert (own.free(), neighbour.free()) == (1, 1)
        assert own.take(2) is None
        unlock(held)
        own.give_back(taken)
        assert (own.free(), neighbour.free()) == (3, 3)

    def test_variables_name_the_devices_of_a_job_and_hide_the_others(self) -> None:
        mine, other, card = Device("GPU-1", NVIDIA), Device("GPU-2", NVIDIA), Device("GPU-3", AMD)
        devices = HostDevices([mine, other, card])
        assert devices.environment([mine]) == {
            "CUDA_VISIBLE_DEVICES": "GPU-1",
            "ROCR_VISIBLE_DEVICES": "",
            "FORESTAY_DEVICES": "GPU-1",
        }
        assert devices.environment([]) == {
            "CUDA_VISIBLE_DEVICES": "",
            "ROCR_VISIBLE_DEVICES": "",
            "FORESTAY_DEVICES": "",
        }
        assert HostDevices([]).environment([]) == {}


def submit(server: FakeServer, text: str, gpus: int = 1, index: int = 0) -> None:
    server.submit("sh", "-c", text, resources={"cpus": 1, "gpus": gpus}, index=index)


class TestPilots:
    def test_each_job_has_its_own(self, server: FakeServer, pilot: Callable[..., object], tmp_path: Path) -> None:
        devices = [Device(unique(), NVIDIA), Device(unique(), NVIDIA)]
        text = f'echo "$CUDA_VISIBLE_DEVICES $FORESTAY_DEVICES" > {tmp_path}/$FORESTAY_INDEX; sleep 0.3'
        for index in range(4):
            submit(server, text, index=index)
        submit(server, text, gpus=0, index=9)
        pilot(slots=4, devices=devices, resources={"cpus": 8, "gpus": 2})
        until(lambda: len(server.seen.completions) == 5, "five completions")
        names = {device.name for device in devices}
        for end in server.seen.completions:
            assert end["outcome"] == "ok"
        written = {path.name: path.read_text().split() for path in tmp_path.iterdir() if path.name.isdigit()}
        assert written.pop("9") == []
        assert all(len(words) == 2 and words[0] == words[1] and words[0] in names for words in written.values())
        told = [end.get("devices") for end in server.seen.completions]
        assert sorted(map(str, told)) == sorted(map(str, [None, *([words[0]] for words in written.values())]))
        assert {entry["name"] for entry in server.seen.registrations[0]["devices"]} == names

    def test_a_stray_keeps_its_device_when_pilot_and_guard_were_killed_at_once(
        self, server: FakeServer, pilot_process: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
    ) -> None:
        device = unique()
        stray = tmp_path / "stray"
        text = f'setsid env -i sleep 600 & echo $! > {stray}; echo "$PPID" > {tmp_path}/guard; exec sleep 600'
        submit(server, text)
        first = pilot_process("--device", device)
        until(lambda: (tmp_path / "guard").exists() and (tmp_path / "guard").read_text(), "the payload")
        sleeper, guard = int(stray.read_text()), int((tmp_path / "guard").read_text())
        for pid in (first.pid, guard):
            os.kill(pid, signal.SIGSTOP)  # so that neither sees the other's death
        for pid in (first.pid, guard):
            os.kill(pid, signal.SIGKILL)
        first.wait()
        try:
            until(lambda: not Path(f"/proc/{guard}").exists(), "the guard's end")
            assert is_held(device)
            pilot_process("--device", device)
            until(lambda: len(server.seen.registrations) == 2, "the second pilot")
            asked = len(server.seen.claim_requests)
            until(lambda: len(server.seen.claim_requests) > asked + 1, "requests of the second pilot")
            assert server.seen.claim_requests[-1]["resources"]["gpus"] == 0
        finally:
            os.kill(sleeper, signal.SIGKILL)
        until(lambda: server.seen.claim_requests[-1]["resources"]["gpus"] == 1, "the device to be free")

    def test_a_server_of_an_earlier_release_is_told_nothing_of_devices(
        self, server: FakeServer, pilot: Callable[..., object]
    ) -> None:
        server.failures.unknown_fields = frozenset({"devices"})
        pilot(devices=[Device(unique())], features={"os": "el9"})
        until(lambda: len(server.seen.registrations) >= 1, "a registration")
        assert not server.seen.registrations[-1].keys() & {"devices", "features", "runtimes"}


def test_an_address_is_no_file(tmp_path: Path) -> None:
    descriptor = lock_device(unique())
    assert descriptor is not None
    with socket.socket(fileno=descriptor) as holder:
        assert isinstance(holder.getsockname(), bytes)
