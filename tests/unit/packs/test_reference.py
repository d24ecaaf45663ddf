"""The page about packs says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.formats.rules.pack_folder import shipped_packs
from forestay.formats.rules.pack_yaml import WHEN_FIELDS, failed_fixtures, read_pack_text

DOCS = Path(__file__).parents[3] / "docs"


def test_the_example_is_good() -> None:
    page = (DOCS / "reference" / "packs.md").read_text()
    example = re.findall(r"```yaml\n(.*?)```", page, re.S)[0]
    read = read_pack_text(example)
    assert read.problems == ()
    (pack_pattern,) = read.patterns
    everything = Classifier([*(known.pattern for known in shipped_packs().patterns), pack_pattern.pattern])
    assert failed_fixtures(pack_pattern, everything) == []


def test_every_condition_and_every_cause_is_told() -> None:
    page = (DOCS / "reference" / "packs.md").read_text()
    assert [name for name in WHEN_FIELDS if f"`{name}`" not in page] == []
    causes = (DOCS / "explanation" / "causes.md").read_text()
    assert [str(cause) for cause in Cause if f"| `{cause}` |" not in causes] == []
