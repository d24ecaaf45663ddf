"""Folders shipped with Forestay: at the root of a checkout, inside the package of an installed one."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_PACKAGE = files("forestay")
"""Looked up on import, because the lookup itself imports modules, which must not delay the first failure."""


def shipped_folder(name: str) -> Traversable:
    """The folder of that name."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else Path(str(_PACKAGE)).parents[1] / name
