"""The common parts of all request models: bounds, names, and the model that refuses unknown fields."""

from __future__ import annotations

import re
from typing import Annotated

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

INT64 = 2**63 - 1


def without_controls(text: str) -> str:
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        raise ValueError("control characters are not allowed")
    return text


def one_line(text: str) -> str:
    if re.search(r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]", text):
        raise ValueError("control and direction characters are not allowed")
    return text


def storable(value: JsonValue) -> JsonValue:
    """Values that every store and reader of JSON has: numbers of at most 64 bits, and texts without half of a surrogate pair."""
    left: list[JsonValue] = [value]
    while left:
        match left.pop():
            case bool():
                continue
            case int() as number if abs(number) > INT64:
                raise ValueError("whole numbers have at most 64 bits")
            case list() as values:
                left += values
            case dict() as fields:
                left += fields.values()
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise ValueError(f"it cannot be stored: {error}") from error
    return value


PlainValue = Annotated[JsonValue, AfterValidator(storable)]
"""Any value of JSON: data of an event, parameters of a run, an answer."""
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(one_line)]
Word = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._@+-]+$")]
"""Tenants, owners, teams: they become part of keys."""
Holder = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._@+:-]+$")]
"""A person, or an incident and its step."""
Reason = Annotated[str, Field(max_length=200), AfterValidator(one_line)]
Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$")]
"""Ids of jobs and claims; our own have only these characters, and they become part of keys."""
NoNul = Annotated[str, AfterValidator(without_controls)]
EnvName = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
