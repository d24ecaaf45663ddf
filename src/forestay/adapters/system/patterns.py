"""The patterns of the packs on this machine, read when the first failure wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from forestay.domain.exceptions.causes.classify import Classifier
from forestay.formats.rules.pack_folder import folders, read_packs
from forestay.ports.exceptions.classifiers import CauseClassifiers


@dataclass(slots=True)
class Patterns(CauseClassifiers):
    """Reading takes a second, which no start of a process should wait for."""

    wrong: Callable[[str], None] = lambda _text: None
    """Told of what is wrong in a pack; the rest of it is used."""
    more: list[Path] = field(default_factory=folders)
    _classifier: Classifier | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def classifier(self) -> Classifier:
        async with self._reading:
            if self._classifier is None:
                self._classifier = await asyncio.to_thread(self._read)
        return self._classifier

    def _read(self) -> Classifier:
        packs = read_packs(self.more)
        for name, problem in packs.problems:
            self.wrong(f"{name}: {problem}")
        return packs.classifier()
