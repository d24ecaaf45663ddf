"""What a release refuses, what becomes of the changelog, and that a changed file is noticed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from scripts.release import KINDS, PLACES, ROOT, SIGNER, Key, RefusedError, fragments_in, released, verify, version_of

CHANGELOG = """# Changelog

## 0.2.0 - not released yet

- What was written by hand.

## 0.1.0 - 2026-12-01

- Old.
"""


def test_the_version_is_the_same_everywhere() -> None:
    assert version_of(ROOT)


@pytest.mark.parametrize("place", PLACES)
def test_a_version_that_differs_is_refused(place: str, tmp_path: Path) -> None:
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    version = version_of(tmp_path)
    text = (tmp_path / place).read_text(encoding="utf-8")
    (tmp_path / place).write_text(text.replace(version, "9.9.9"), encoding="utf-8")
    with pytest.raises(RefusedError, match="versions differ"):
        version_of(tmp_path)


def test_fragments_are_read_by_kind(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("how to write one")
    (tmp_path / "b.fixed.md").write_text("It was\nwrong.\n")
    (tmp_path / "a.fixed.md").write_text("So was that.\n")
    assert fragments_in(tmp_path) == {"fixed": ["So was that.", "It was wrong."]}
    (tmp_path / "c.mended.md").write_text("?")
    with pytest.raises(RefusedError, match=r"c\.mended\.md"):
        fragments_in(tmp_path)


def test_the_fragments_of_the_tree_can_be_released() -> None:
    assert set(fragments_in(ROOT / "changes")) <= set(KINDS)


def test_the_entry_has_the_day_and_the_fragments_by_kind() -> None:
    fragments = {"fixed": ["A defect."], "added": ["A command.", "**Breaking:** a field."]}
    text, entry = released(CHANGELOG, "0.2.0", "2027-01-02", fragments)
    assert entry.splitlines() == [
        "## 0.2.0 - 2027-01-02",
        "",
        "- What was written by hand.",
        "",
        "### Added",
        "",
        "- **Breaking:** a field.",
        "- A command.",
        "",
        "### Fixed",
        "",
        "- A defect.",
    ]
    assert text == f"# Changelog\n\n{entry}\n## 0.1.0 - 2026-12-01\n\n- Old.\n"


def test_a_release_without_an_entry_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"0\.3\.0"):
        released(CHANGELOG, "0.3.0", "2027-01-02", {})


def test_a_signature_is_of_its_file_and_its_signer(tmp_path: Path) -> None:
    key = Key.for_tests(tmp_path)
    (tmp_path / "other").mkdir()
    sums, signers, others = tmp_path / "SHA256SUMS", tmp_path / "signers", tmp_path / "others"
    sums.write_text("0000  forestay.whl\n")
    signers.write_text(f"{SIGNER} {key.public}\n")
    others.write_text(f"{SIGNER} {Key.for_tests(tmp_path / 'other').public}\n")
    signature = key.sign(sums)
    verify(sums, signature, signers)
    with pytest.raises(subprocess.CalledProcessError):
        verify(sums, signature, others)
    sums.write_text("0001  forestay.whl\n")
    with pytest.raises(subprocess.CalledProcessError):
        verify(sums, signature, signers)
