"""Documents that can be read, of many."""

from __future__ import annotations

import json

from forestay.formats.text.readable import Readable


def test_what_is_spoilt_is_left_out_and_told_of_once() -> None:
    names: list[str] = []
    readable = Readable(lambda name, _why: names.append(name))
    rows = [("a", '{"n": 1}'), ("b", '{"n": '), ("c", '{"m": 2}'), ("d", '{"n": 3}')]
    for _ in range(3):
        assert readable.each(rows, lambda text: json.loads(text)["n"]) == [1, 3]
    assert names == ["b", "c"]
