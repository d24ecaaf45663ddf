"""What a server keeps of specifications: what is asked for often, and nothing large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from forestay.domain.jobs.specification import Specification
from forestay.services.jobs.specification_cache import LARGE, MOST, MOST_BYTES, SpecificationCache


@dataclass
class Store:
    specs: dict[str, Specification]
    read: list[str] = field(default_factory=list)

    async def get_specifications(self, ids: Sequence[str]) -> Mapping[str, Specification]:
        self.read += ids
        return {name: self.specs[name] for name in ids if name in self.specs}


def spec(name: str, size: int = 10) -> Specification:
    return Specification(name, "t", "n", ("true",), extra={"tes": {"task": {"content": "x" * size}}})


def knowing(*specs: Specification) -> tuple[SpecificationCache, Store]:
    store = Store({spec.id: spec for spec in specs})
    return SpecificationCache(cast(Any, store)), store


async def test_one_is_read_once_and_a_large_one_each_time() -> None:
    known, store = knowing(spec("small"), spec("large", LARGE))
    for _ in range(2):
        assert set(await known.find(["small", "large", "none"])) == {"small", "large"}
    assert store.read == ["large", "none", "small", "large", "none"]
    assert known.size < 1000


async def test_what_is_about_to_be_stored_is_not_read() -> None:
    known, store = knowing()
    known.know([spec("new")])
    assert set(await known.find(["new"])) == {"new"}
    assert store.read == []


async def test_all_together_are_bounded_in_number_and_in_bytes() -> None:
    known, store = knowing()
    known.know(spec(f"s{n}") for n in range(MOST + 5))
    size = known.size
    known.know([spec(f"s{MOST}")])
    assert known.size == size, "one that is known is not counted again"
    assert await known.find(["s3"]) == {}
    assert store.read == ["s3"]
    many = MOST_BYTES // (LARGE - 1000) + 10
    known.know(spec(f"big{n}", LARGE - 1000) for n in range(many))
    assert known.size <= MOST_BYTES
    assert await known.find(["big0"]) == {}
    assert len(await known.find([f"big{many - 1}"])) == 1
