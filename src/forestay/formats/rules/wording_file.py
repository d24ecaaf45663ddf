"""The file of the second classifier: one line of JSON with its causes and numbers, then its weights."""

from __future__ import annotations

import json
from functools import cache

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.causes.wording import BUCKETS, WordingModel
from forestay.formats.text.shipped_folder import shipped_folder

FOLDER, FILE = "wording", "model.bin"
VERSION = 1
"""The version of the file and of the features: a change of either gets the next number."""


def write_model(model: WordingModel) -> bytes:
    """The file's contents; equal models give the same bytes."""
    head = {
        "version": VERSION,
        "buckets": BUCKETS,
        "causes": [str(cause) for cause in model.causes],
        "scales": model.scales,
        "offsets": model.offsets,
        "steps": model.steps,
        "trained_on": model.trained_on,
    }
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + model.weights


def read_model(content: bytes) -> WordingModel:
    """The model in such a file; raises ValueError for anything else, or another version."""
    line, _, weights = content.partition(b"\n")
    head = json.loads(line)
    if (head.get("version"), head.get("buckets")) != (VERSION, BUCKETS):
        raise ValueError(f"version {head.get('version')} of the second classifier's file is not {VERSION}")
    return WordingModel(
        [Cause(cause) for cause in head["causes"]],
        weights,
        head["scales"],
        head["offsets"],
        [(strength, confidence) for strength, confidence in head["steps"]],
        head["trained_on"],
    )


@cache
def shipped_wording() -> WordingModel:
    """The second classifier that comes with Forestay, read once."""
    return read_model((shipped_folder("packs") / FOLDER / FILE).read_bytes())
