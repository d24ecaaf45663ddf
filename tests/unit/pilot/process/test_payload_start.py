"""How a payload becomes its program: where that is found, and what it begins with."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.fake_server import until

from forestay_pilot.process.guard_link import GuardLink, WaitingPayload
from forestay_pilot.process.payload import Payload, PayloadOutcome, Surroundings, make_payload, read_claim

GRACE = 1.0


@pytest.fixture
def guard() -> Iterator[GuardLink]:
    link = GuardLink(lambda: None)
    yield link
    link.close()


@pytest.fixture(params=[False, True], ids=["forked", "spawned"])
def at_hand(request: pytest.FixtureRequest) -> bool:
    """Whether the guard may wait for a payload's files, and so start it without a copy of itself."""
    return bool(request.param)


def payload(
    folder: Path, *argv: str, path: str = os.defpath, program: str = "", at_hand: bool = False, grace: float = GRACE
) -> Payload:
    """A payload as the guard gets it."""
    return Payload(
        claim="c1",
        argv=list(argv),
        environment={"PATH": path},
        folder=str(folder),
        log=str(folder / "c1.log"),
        wall=None,
        grace=grace,
        external=False,
        program=program,
        at_hand=at_hand,
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


def test_a_program_that_is_gone_when_it_starts_is_searched_for_again(
    guard: GuardLink, tmp_path: Path, at_hand: bool
) -> None:
    tool = executable(tmp_path / "bin/tool", "#!/bin/sh\nexit 7\n")
    wanted = payload(tmp_path, "tool", path=str(tool.parent), program=f"{tmp_path}/moved/tool", at_hand=at_hand)
    assert outcome(guard, wanted).exit_code == 7


def test_a_program_that_cannot_be_started_is_told_as_by_its_own_search(
    guard: GuardLink, tmp_path: Path, at_hand: bool
) -> None:
    tool = executable(tmp_path / "bin/tool", "no program at all\n")
    ends = [
        outcome(guard, payload(tmp_path, "tool", path=str(tool.parent), program=at, at_hand=at_hand))
        for at in ("", str(tool))
    ]
    assert [end.start_symbol for end in ends] == ["ENOEXEC", "ENOEXEC"]
    assert [end.start_part for end in ends] == ["program", "program"]


def test_words_that_are_too_many_for_the_system_are_told(guard: GuardLink, tmp_path: Path, at_hand: bool) -> None:
    words = ["x" * 100_000] * 100
    end = outcome(guard, payload(tmp_path, "true", *words, program="/bin/true", at_hand=at_hand))
    assert (end.start_symbol, end.start_part) == ("E2BIG", "program")
    assert outcome(guard, payload(tmp_path, "true", program="/bin/true", at_hand=at_hand)).exit_code == 0


def test_a_folder_that_is_gone_is_told(guard: GuardLink, tmp_path: Path, at_hand: bool) -> None:
    end = outcome(guard, payload(tmp_path / "gone", "true", program="/bin/true", at_hand=at_hand))
    assert (end.start_symbol, end.start_part) == ("ENOENT", "folder")


def test_a_payload_ignores_no_signal_and_blocks_none(guard: GuardLink, tmp_path: Path, at_hand: bool) -> None:
    """Python ignores SIGPIPE: `yes | head` would never end."""
    wanted = payload(tmp_path, "cat", "/proc/self/status", program="/bin/cat", at_hand=at_hand)
    lines = (line.partition(":") for line in outcome(guard, wanted).log_tail.splitlines())
    masks = {name: int(value, 16) for name, _, value in lines if name in ("SigIgn", "SigBlk", "SigCgt")}
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        assert not any(mask & 1 << (number - 1) for mask in masks.values()), (number, masks)
    assert len(masks) == 3


ENVIRONMENT = {"LC_CTYPE": "C.UTF-8", "PATH": os.defpath, "SIGN": "\u00e9="}
SURROUNDINGS = """
import os
print(os.getsid(0) == os.getpid() == os.getpgrp(), os.getcwd(), open("/proc/self/oom_score_adj").read().strip())
print({int(name): os.readlink(f"/proc/self/fd/{name}").partition(":")[0] for name in sorted(os.listdir("/proc/self/fd")) if int(name) < 20 and os.path.exists(f"/proc/self/fd/{name}")})
print(sorted(os.environ.items()), os.read(0, 1))
"""


def test_a_payload_has_a_session_a_folder_and_three_files_of_its_own(
    guard: GuardLink, tmp_path: Path, at_hand: bool
) -> None:
    wanted = payload(tmp_path, sys.executable, "-I", "-S", "-c", SURROUNDINGS, at_hand=at_hand)
    first, files, last = outcome(guard, replace(wanted, environment=ENVIRONMENT)).log_tail.splitlines()
    adjustment = "500" if os.getuid() == 0 else first.split()[-1]
    assert first == f"True {tmp_path} {adjustment}"
    assert files == "{0: '/dev/null', 1: 'pipe', 2: 'pipe'}"
    assert last == f"{sorted(ENVIRONMENT.items())} b''"


def test_a_payload_dies_with_its_guard_even_if_the_pilot_can_do_nothing(tmp_path: Path, at_hand: bool) -> None:
    script = f"""
import os, signal
from dataclasses import replace
from pathlib import Path
from tests.unit.pilot.process.test_payload_start import payload
from forestay_pilot.process.guard_link import GuardLink, WaitingPayload
guard = GuardLink(lambda: None)
waiting = WaitingPayload(external=False)
wanted = payload(Path({str(tmp_path)!r}), "sleep", "600", program="/bin/sleep", at_hand={at_hand})
guard.start(wanted, waiting)
while not waiting.pid:
    pass
print(guard._process.pid, waiting.pid, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as pilot:
        assert pilot.stdout is not None
        guard, run = (int(word) for word in pilot.stdout.readline().split())
        os.waitpid(pilot.pid, os.WUNTRACED)
        try:
            os.kill(guard, signal.SIGKILL)
            until(lambda: state_of(run) in ("Z", ""), "the payload's end")
        finally:
            pilot.kill()
            with contextlib.suppress(OSError):
                os.kill(run, signal.SIGKILL)


def test_what_a_payload_writes_in_its_first_moment_and_later_is_all_kept(
    guard: GuardLink, tmp_path: Path, at_hand: bool
) -> None:
    """More than a pipe holds, before its guard reads from it."""
    script = "head -c 300000 /dev/zero; sleep 0.1; head -c 300000 /dev/zero; echo end"
    end = outcome(guard, payload(tmp_path, "sh", "-c", script, program="/bin/sh", at_hand=at_hand))
    assert (end.exit_code, end.log_bytes) == (0, 600004)
    assert (tmp_path / "c1.log").stat().st_size == 600004


def test_a_payload_that_outlives_its_first_moment_is_announced(guard: GuardLink, tmp_path: Path, at_hand: bool) -> None:
    waiting = WaitingPayload(external=False)
    wanted = payload(tmp_path, "sleep", "600", program="/bin/sleep", at_hand=at_hand)
    guard.start(wanted, waiting)
    until(lambda: waiting.pid > 0, "the announcement")
    assert state_of(waiting.pid) in ("S", "R", "D")
    guard.stop(wanted.claim, "cancelled")
    assert waiting.done.wait(60)


def state_of(pid: int) -> str:
    """A process's state as the kernel says it; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_guard_outlives_a_log_that_may_not_grow(guard: GuardLink, tmp_path: Path) -> None:
    """The signal for that is handled, where Python would have ignored it; the payload ends well."""
    process = guard._process
    assert process is not None
    # By the command: a Python that was built on an old system has no such call.
    subprocess.run(["prlimit", f"--pid={process.pid}", "--fsize=100:100"], check=True)
    end = outcome(guard, payload(tmp_path, "head", "-c", "100000", "/dev/zero"))
    assert (end.exit_code, end.log_bytes) == (0, 100000)
    assert process.poll() is None
