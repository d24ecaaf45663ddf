"""What a campaign wrote when it was recorded, as one digest for each job, incident or document; and what differs from it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.system.pipeline.campaign import run_campaign

SEED = 20
WAYS: Mapping[str, bool] = {"jobs only": False, "with runs": True}
"""Without an engine for runs, and with one."""
Digests = Mapping[str, Mapping[str, str]]
"""By way, and by subject."""


def campaign_lines(*, failures: int, engine: bool) -> Mapping[str, Sequence[str]]:
    with TemporaryDirectory(prefix="forestay-pipeline-") as folder:
        recorder, _ = asyncio.run(run_campaign(Path(folder), failures=failures, seed=SEED, engine=engine))
    return recorder.lines


def digests(written: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    return {name: hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8] for name, lines in written.items()}


def _file(failures: int) -> Path:
    return Path(__file__).parent / f"recorded-{failures}.json.xz"


def keep_digests(failures: int, found: Digests) -> None:
    with lzma.open(_file(failures), "wt") as out:
        json.dump(found, out, sort_keys=True)


def kept_digests(failures: int) -> Digests:
    with lzma.open(_file(failures), "rt") as kept:
        read: Digests = json.load(kept)
    return read


def differences(kept: Digests, found: Digests) -> list[str]:
    """The subjects about which something else was written, or in another order."""
    return [
        f"{way}: {subject}"
        for way, subjects in found.items()
        for subject in sorted(subjects.keys() | kept[way].keys())
        if subjects.get(subject) != kept[way].get(subject)
    ]
