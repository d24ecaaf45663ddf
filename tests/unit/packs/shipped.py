"""The packs that come with the product: their classifier is made once by each process of a test run, and nothing is read while tests are collected."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from forestay.domain.exceptions.causes.classify import Classifier
from forestay.formats.rules.pack_folder import shipped, shipped_packs


@cache
def classifier() -> Classifier:
    return shipped_packs().classifier()


def pattern_names() -> list[str]:
    """Names of all patterns, by their text alone; a test holds them against what is read."""
    files = sorted(Path(str(shipped())).rglob("*.yaml"))
    return [
        name for file in files for name in re.findall(r"^  - (?:\{ ?)?name: ([\w.-]+)", file.read_text(), re.MULTILINE)
    ]
