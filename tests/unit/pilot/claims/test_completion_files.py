"""The files with completions that are not settled: lists at any moment, gone when nothing in them is needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.conftest import SOURCE

from forestay_pilot.claims.completion_files import CompletionFiles, parse_completions


@pytest.fixture
def files(tmp_path: Path) -> CompletionFiles:
    return CompletionFiles(str(tmp_path))


def end(number: int, *, tail: str = "") -> dict[str, Any]:
    return {"job": f"j{number}", "claim": f"c{number}", "outcome": "ok", "log_tail": tail}


def on_disk(folder: Path) -> list[list[Any]]:
    return [
        json.loads(path.read_bytes()) for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    ]


def test_one_file_takes_many_ends_and_is_a_list_after_each(files: CompletionFiles, tmp_path: Path) -> None:
    for number in range(5):
        files.keep([end(2 * number), end(2 * number + 1, tail="é\n")])
        assert on_disk(tmp_path) == [[end(n, tail="é\n" if n % 2 else "") for n in range(2 * number + 2)]]
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_goes_with_the_last_of_its_ends(files: CompletionFiles, tmp_path: Path) -> None:
    kept = [files.keep([end(number)]) for number in range(3)]
    for file in kept[:2]:
        files.settle(file)
    assert len(on_disk(tmp_path)[0]) == 3
    files.settle(kept[2])
    assert on_disk(tmp_path) == []
    files.keep([end(4)])
    assert on_disk(tmp_path) == [[end(4)]]


def test_an_end_that_is_not_settled_holds_few_others_on_disk(files: CompletionFiles, tmp_path: Path) -> None:
    first = files.keep([end(0)])
    for number in range(1, 200):
        files.settle(files.keep([end(number, tail="x" * 2000)]))
    (held,) = on_disk(tmp_path)
    assert len(held) < 40
    files.settle(first)
    assert on_disk(tmp_path) == []


@pytest.mark.parametrize("written", [0, 1, 40])
def test_a_full_disk_harms_no_end_that_is_kept(
    files: CompletionFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    write = os.pwrite

    def full(descriptor: int, content: bytes, at: int) -> int:
        if len(content) > 1:
            return write(descriptor, content[:written], at)
        return write(descriptor, content, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            files.keep([end(0)])
    assert on_disk(tmp_path) == []
    files.keep([end(1)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            files.keep([end(2)])
    assert on_disk(tmp_path) == [[end(1)]]
    files.keep([end(3)])
    assert on_disk(tmp_path) == [[end(1), end(3)]]


@pytest.mark.parametrize("left", [1, 30, 100])
def test_what_stands_before_a_write_that_was_cut_short_is_read(left: int) -> None:
    whole = json.dumps([end(1), end(2)]).encode()[:-1] + b"," + json.dumps([end(3), end(4)]).encode()[1:]
    assert parse_completions(whole) == [end(number) for number in (1, 2, 3, 4)]
    cut = parse_completions(whole[:-left])
    assert cut[-1] is None
    assert [end(1), end(2)] == cut[:2]


def test_what_has_no_end_at_all_is_refused() -> None:
    for content in (b"", b"[", b"{", b'[{"job": "j1", "cla', b"\xff\xfe"):
        with pytest.raises(ValueError, match=r"."):
            parse_completions(content)


def test_a_killed_pilot_leaves_every_end_that_it_kept(tmp_path: Path) -> None:
    code = """
import sys
from forestay_pilot.claims.completion_files import CompletionFiles
files = CompletionFiles(sys.argv[1])
for number in range(1 << 30):
    files.keep([{"job": f"j{number}", "claim": f"c{number}", "log_tail": "x" * 9000}])
    print(number, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, env={"PYTHONPATH": str(SOURCE)}
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 50:
            process.send_signal(signal.SIGKILL)
            break
    said = int((process.stdout.read().split(b"\n")[:-1] or [line])[-1])
    process.wait()
    process.stdout.close()
    found = [entry["claim"] for path in tmp_path.iterdir() for entry in parse_completions(path.read_bytes()) if entry]
    assert set(found) >= {f"c{number}" for number in range(said + 1)}
    assert len(found) == len(set(found))
