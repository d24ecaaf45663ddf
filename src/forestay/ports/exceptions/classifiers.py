"""Where the classifier of causes comes from."""

from __future__ import annotations

from typing import Protocol

from forestay.domain.exceptions.causes.classify import Classifier


class CauseClassifiers(Protocol):
    """Has the patterns of all packs."""

    async def classifier(self) -> Classifier:
        """The classifier of the packs on this machine; the first call may take a second."""
        ...
