"""How a payload becomes its program: where that is found, and what it begins with."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forestay_pilot.process.guard_link import GuardLink
from forestay_pilot.process.payload import Payload, PayloadOutcome, Surroundings, make_payload, read_claim

GRACE = 1.0


@pytest.fixture
def guard() -> Iterator[GuardLink]:
    link = GuardLink(lambda: None)
    yield link
    link.close()


def payload(folder: Path, *argv: str, path: str = os.defpath, program: str = "") -> Payload:
    """A payload as the guard gets it."""
    return Payload(
        claim="c1",
        argv=list(argv),
        environment={"PATH": path},
        folder=str(folder),
        log=str(folder / "c1.log"),
        wall=None,
        grace=GRACE,
        external=False,
        program=program,
    )


def outcome(guard: GuardLink, wanted: Payload) -> PayloadOutcome:
    return guard.run(wanted, stop_why=lambda: "")


def program_of(name: str, path: str | None) -> str:
    """Where a pilot finds the program of a claim."""
    document: dict[str, Any] = {"job": "j", "generation": 1, "attempt": 1, "claim": "c1"}
    environment = {} if path is None else {"PATH": path}
    document["specification"] = {"command": [name], "environment": environment}
    return make_payload(read_claim(document), "/folder", "/log", Surroundings(inherited={})).program


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_program_is_where_its_path_has_it_first(tmp_path: Path) -> None:
    first, second = executable(tmp_path / "first/tool"), executable(tmp_path / "second/tool")
    path = f"{tmp_path}/none:{first.parent}:{second.parent}"
    assert program_of("tool", path) == str(first)
    first.chmod(0o644)
    assert program_of("tool", path) == str(second)
    first.unlink()
    first.mkdir()
    assert program_of("tool", path) == str(second), "a folder is no program"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("./tool", "/usr/bin"),  # a path of its own
        ("true", "bin:/usr/bin"),  # a folder in the payload's own folder may have it
        ("true", ":/usr/bin"),  # the same: that folder itself
        ("true", None),  # the system's own
        ("nowhere-at-all", "/usr/bin:/bin"),
        ("tr\ud800ue", "/usr/bin"),  # no name of a file
    ],
)
def test_what_only_the_payloads_own_search_can_tell_is_left_to_it(name: str, path: str | None) -> None:
    assert program_of(name, path) == ""


def test_a_program_that_is_gone_when_it_starts_is_searched_for_again(guard: GuardLink, tmp_path: Path) -> None:
    tool = executable(tmp_path / "bin/tool", "#!/bin/sh\nexit 7\n")
    wanted = payload(tmp_path, "tool", path=str(tool.parent), program=f"{tmp_path}/moved/tool")
    assert outcome(guard, wanted).exit_code == 7


def test_a_program_that_cannot_be_started_is_told_as_by_its_own_search(guard: GuardLink, tmp_path: Path) -> None:
    tool = executable(tmp_path / "bin/tool", "no program at all\n")
    ends = [outcome(guard, payload(tmp_path, "tool", path=str(tool.parent), program=at)) for at in ("", str(tool))]
    assert [end.start_symbol for end in ends] == ["ENOEXEC", "ENOEXEC"]
    assert [end.start_part for end in ends] == ["program", "program"]


def test_a_payload_ignores_no_signal_and_blocks_none(guard: GuardLink, tmp_path: Path) -> None:
    """Python ignores SIGPIPE: `yes | head` would never end."""
    end = outcome(guard, payload(tmp_path, "cat", "/proc/self/status"))
    lines = (line.partition(":") for line in end.log_tail.splitlines())
    masks = {name: int(value, 16) for name, _, value in lines if name in ("SigIgn", "SigBlk", "SigCgt")}
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        assert not any(mask & 1 << (number - 1) for mask in masks.values()), (number, masks)
    assert len(masks) == 3


def test_a_guard_outlives_a_log_that_may_not_grow(guard: GuardLink, tmp_path: Path) -> None:
    """The signal for that is handled, where Python would have ignored it; the payload ends well."""
    process = guard._process
    assert process is not None
    # By the command: a Python that was built on an old system has no such call.
    subprocess.run(["prlimit", f"--pid={process.pid}", "--fsize=100:100"], check=True)
    end = outcome(guard, payload(tmp_path, "head", "-c", "100000", "/dev/zero"))
    assert (end.exit_code, end.log_bytes) == (0, 100000)
    assert process.poll() is None
