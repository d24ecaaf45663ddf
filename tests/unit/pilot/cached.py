"""Caches to test, and files to put into them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from forestay_pilot.cache.cache import Cache, CacheSettings
from forestay_pilot.cache.cache_changes import CacheChanges


def cache_in(folder: Path, space: int = 1000, **changes: Any) -> Cache:
    return Cache(CacheSettings(str(folder), space, **changes), CacheChanges())


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(cache: Cache, place: Path, name: str, content: bytes, **more: Any) -> bool:
    """As if a job had just brought it into its folder."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / os.urandom(4).hex()
    path.write_bytes(content)
    return cache.keep(name, str(path), size=len(content), sha256=sha256_of(content), **more)


def cached_bytes(folder: Path) -> int:
    """What the files of all areas really take, each counted once."""
    st_sizes = {about.st_ino: about.st_size for path in folder.glob("area-*/files/*") for about in [path.stat()]}
    return sum(st_sizes.values())
