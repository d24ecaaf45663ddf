"""`forestay check`: flows are checked without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.apps.cli.conftest import Shell

EXAMPLES = sorted(Path(__file__).parents[5].glob("examples/*.yaml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda value: value.name)
def test_the_examples_are_good(forestay: Shell, example: Path) -> None:
    ended = forestay("check", str(example))
    assert ended.code == 0, ended.out
    assert ": good: " in ended.out


def test_every_error_is_told_with_its_line_and_column(forestay: Shell, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        "forestay: 1\nname: wrong\ntasks:\n  a:\n    command: [echo, '${tasks.c.outputs.x}']\n    afterr: [b]\n"
    )
    ended = forestay("check", str(wrong))
    assert ended.code == 1
    assert f"{wrong}:6:" in ended.out
    assert "after" in ended.out
    assert "error" in ended.err


def test_json_for_scripts(forestay: Shell, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("forestay: 1\nname: good\ntasks:\n  a: {command: ['true']}\n")
    bad.write_text("forestay: 1\nname: bad\ntasks: {}\n")
    ended = forestay("check", "--json", str(good), str(bad))
    assert ended.code == 1
    first, second = ended.json["flows"]
    assert (first["name"], first["tasks"], len(first["version"]), first["problems"]) == ("good", 1, 64, [])
    assert second["problems"][0].keys() == {"line", "column", "where", "message"}
    assert "version" not in second


def test_a_flow_from_stdin(forestay: Shell) -> None:
    assert forestay("check", "-", stdin="forestay: 1\nname: piped\ntasks:\n  a: {command: ['true']}\n").code == 0


def test_a_file_that_cannot_be_read_says_so(forestay: Shell, tmp_path: Path) -> None:
    missing, binary = tmp_path / "missing.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in forestay("check", str(missing)).err
    ended = forestay("check", str(binary))
    assert ended.code == 2
    assert "UTF-8" in ended.err


def test_a_flow_that_no_server_takes_is_refused(forestay: Shell, tmp_path: Path) -> None:
    huge = tmp_path / "huge.yaml"
    huge.write_text("# " + "x" * 600_000)
    assert "characters" in forestay("check", str(huge)).err
