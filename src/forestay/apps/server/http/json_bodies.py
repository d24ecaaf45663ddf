"""JSON bodies: their shape is bounded before anything is built of them, and large ones are parsed in slices.

One body of a megabyte can contain half a million empty lists: building, checking and collecting them takes seconds, in which the loop
serves nobody. The shape is counted on the bytes, at a gigabyte in a second or two, without building anything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from forestay.apps.server.http.caller_limits import TURN, Turn
from forestay.apps.server.http.problems import MOST_FIELDS, HttpProblem, invalid_fields
from forestay.services.shared.loop_slices import LoopSlices

MAX_DEPTH = 100
"""Levels of lists and objects: a flow has twenty, and a recursive reader needs a bound."""
MAX_ELEMENTS = 1_000_000
"""Values of a whole body: 10,000 jobs with a hundred each."""
MAX_IN_ITEM = 50_000
"""Values in one piece, which is parsed at once: an item of a list of the body, such as a job, or the value of a field."""
SMALL_BYTES = 65_536
SMALL_ELEMENTS = 2_000
"""A body with no more than this is parsed at once; it takes a millisecond or two."""

_WINDOW = 16_384
_ITEM_DEPTH = 2
"""The depth of the items of the body's lists: `{"jobs": [HERE, HERE]}`."""
_OTHER = bytes(sorted(set(range(256)) - set(b'[]{}",')))
_AS_LISTS = bytes.maketrans(b"{}", b"[]")
_decoder = json.JSONDecoder()
_SPACE = " \t\n\r"


class JsonShape:
    """The nesting depth and the number of values of a text, counted from its bytes as they arrive."""

    def __init__(self) -> None:
        self.elements = 0
        self.in_item = 0
        """Values since the last place where one item of a list can have ended."""
        self._depth = 0
        self._within_string = False
        self._rest = b""
        """A backslash at the end of a piece, which belongs to the next."""

    def read(self, piece: bytes) -> None:
        """Count a piece; raises `HttpProblem`. Invalid JSON gives arbitrary counts, and is refused by the parser."""
        text = (self._rest + piece).replace(b"\\\\", b"")
        self._rest = b"\\" if text.endswith(b"\\") else b""
        parts = text.replace(b'\\"', b"").translate(None, _OTHER).split(b'"')
        outside = b"".join(parts[1 if self._within_string else 0 :: 2])
        if len(parts) % 2 == 0:
            self._within_string = not self._within_string
        many = outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        self.elements += many
        if self.elements > MAX_ELEMENTS:
            raise HttpProblem(413, f"the body has more than {MAX_ELEMENTS} values; send it in parts")
        lowest = self._nest(outside.translate(_AS_LISTS, b","))
        self.in_item = many if lowest <= _ITEM_DEPTH else self.in_item + many
        if self.in_item > MAX_IN_ITEM:
            raise HttpProblem(413, f"one item of the body has more than {MAX_IN_ITEM} values; put them into a file")

    def _nest(self, brackets: bytes) -> int:
        """Follow the depth through brackets, pair by pair from the inside; returns the lowest depth."""
        levels = 0
        while (shorter := brackets.replace(b"[]", b"")) != brackets:
            brackets = shorter
            levels += 1
            if levels > MAX_DEPTH:
                break
        closed = brackets.count(b"]")
        opened = len(brackets) - closed
        if self._depth + levels + opened > MAX_DEPTH:
            raise HttpProblem(400, f"the body nests deeper than {MAX_DEPTH} levels")
        lowest = max(self._depth - closed, 0)
        self._depth = lowest + opened
        return lowest


async def parsed_json(request: Request, model: type[BaseModel] | None = None) -> Any:
    """The body as plain values; `HttpProblem` or `json.JSONDecodeError`.

    In a large body the items of a list of models are validated as they are read, and are models in the result.
    """
    body = await request.body()
    if len(body) <= SMALL_BYTES:
        shape = JsonShape()
        shape.read(body)
        if shape.elements <= SMALL_ELEMENTS:
            return json.loads(body)
    callers = request.app.state.context.callers
    turn: Turn | None = request.scope.get(TURN)
    if turn is None:  # few bytes with many values
        async with callers.large_body(request.scope) as turn:
            return await _parsed_alone(body, model, turn, callers.parsing)
    return await _parsed_alone(body, model, turn, callers.parsing)


async def _parsed_alone(body: bytes, model: type[BaseModel] | None, turn: Turn, parsing: asyncio.Lock) -> Any:
    async with parsing:
        slices = LoopSlices()
        shape = JsonShape()
        try:
            for start in range(0, len(body), _WINDOW):
                shape.read(body[start : start + _WINDOW])
                await slices.pause()
            return await _in_slices(body.decode(json.detect_encoding(body), "surrogatepass"), model, slices)
        except HttpProblem:
            turn.refused()
            raise
        finally:
            await slices.pause()
            turn.parsed(longest=slices.longest, total=slices.total)


async def _in_slices(text: str, model: type[BaseModel] | None, slices: LoopSlices) -> Any:
    """Parse an object field by field, and a list in it item by item."""
    place = _past_space(text, 0)
    if text[place : place + 1] != "{":
        return json.loads(text)
    made: dict[str, Any] = {}
    errors: list[Any] = []

    async def value_at(place: int, name: str) -> tuple[Any, int]:
        if text[place : place + 1] != "[":
            return _decoded(text, place)
        check = _item_check(model, name)
        items: list[Any] = []
        async for member, after in _items(text, place, slices):
            place = after
            if member is not _END:
                items.append(check(member, (name, len(items)), errors))
            if len(errors) >= MOST_FIELDS:
                raise invalid_fields(errors)
        return items, place

    place = _past_space(text, place + 1)
    while text[place : place + 1] != "}":
        if text[place : place + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text[:_SHOWN], place)
        name, place = _decoded(text, place)
        place = _past_space(text, place)
        if text[place : place + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text[:_SHOWN], place)
        made[name], place = await value_at(_past_space(text, place + 1), name)
        await slices.pause()
        place = _next(text, place, "}")
    if _past_space(text, place + 1) != len(text):
        raise json.JSONDecodeError("Extra data", text[:_SHOWN], place)
    if errors:
        raise invalid_fields(errors)
    return made


_END = object()
_SHOWN = 100
"""The most characters of the text that an error contains."""


async def _items(text: str, place: int, slices: LoopSlices) -> AsyncIterator[tuple[Any, int]]:
    """Each item of a list with its end position; finally the end of the list."""
    place = _past_space(text, place + 1)
    while text[place : place + 1] != "]":
        member, place = _decoded(text, place)
        yield member, place
        await slices.pause()
        place = _next(text, place, "]")
    yield _END, place + 1


def _next(text: str, place: int, closing: str) -> int:
    """The position of the next member, or of the closing bracket."""
    place = _past_space(text, place)
    found = text[place : place + 1]
    if found == closing:
        return place
    place = _past_space(text, place + 1)
    if found != "," or text[place : place + 1] == closing:
        raise json.JSONDecodeError("Expecting ',' delimiter", text[:_SHOWN], place)
    return place


def _decoded(text: str, place: int) -> tuple[Any, int]:
    try:
        return _decoder.raw_decode(text, place)
    except json.JSONDecodeError as error:
        raise json.JSONDecodeError(error.msg, text[:_SHOWN], error.pos) from None


def _past_space(text: str, place: int) -> int:
    while text[place : place + 1] and text[place] in _SPACE:
        place += 1
    return place


Check = Callable[[Any, tuple[str, int], list[Any]], Any]


def _item_check(model: type[BaseModel] | None, name: str) -> Check:
    """The validator for an item of a list, from the model of the body."""
    field = model.model_fields.get(name) if model is not None else None
    annotation = field.annotation if field is not None else None
    inner = get_args(annotation)[0] if get_origin(annotation) is list else None
    if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
        return lambda member, _where, _errors: member

    def check(member: Any, where: tuple[str, int], errors: list[Any]) -> Any:
        try:
            return inner.model_validate(member)
        except ValidationError as error:
            errors += [problem | {"loc": ("body", *where, *problem["loc"])} for problem in error.errors()]
            return member

    return check


class JsonRequest(Request):
    """A request whose JSON is bounded, and parsed in slices when it is large."""

    model: type[BaseModel] | None = None

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = await parsed_json(self, self.model)
        return self._json
