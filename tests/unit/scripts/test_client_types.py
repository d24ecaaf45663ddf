"""The client's types are those of the interface's description."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import client_types


def test_the_types_are_current() -> None:
    assert client_types.written() == client_types.PLACE.read_text(), "run: just openapi"


def test_what_may_be_left_out_may_be_null_or_differs_by_server_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_types, "NAMES", {"AOut": "A", "BOut": "B"})
    monkeypatch.setattr(client_types, "PARTIAL", {"BOut"})
    reference = {"$ref": "#/components/schemas/BOut"}
    described: dict[str, dict[str, Any]] = {
        "AOut": {
            "description": "An answer.",
            "properties": {
                "state": {"type": "string", "enum": ["on", "off"]},
                "parts": {"type": "array", "items": {"anyOf": [reference, {"type": "null"}]}},
                "labels": {"type": "object", "patternProperties": {"^[a-z]+$": {"type": "integer"}}},
                "whole": {"type": "object", "additionalProperties": True},
                "extra": {"$ref": "#/components/schemas/EvidenceOut"},
            },
            "required": ["state", "parts", "whole"],
        },
        "BOut": {"properties": {"n": {"type": "number"}}, "required": ["n"]},
        "EvidenceOut": {"type": "object", "properties": {"kind": {"type": "string"}}, "additionalProperties": True},
    }
    assert client_types.Types(described).text().removeprefix(client_types.HEAD) == (
        '\n\nclass A(TypedDict):\n    """An answer."""\n\n'
        "    state: str\n    parts: list[B | None]\n    labels: NotRequired[dict[str, int]]\n"
        "    whole: dict[str, Any]\n    extra: NotRequired[dict[str, Any]]\n"
        "\n\nclass B(TypedDict):\n    n: NotRequired[float]\n"
    )


def test_a_type_without_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_types, "NAMES", {"AOut": "A"})
    described: dict[str, dict[str, Any]] = {
        "AOut": {"properties": {"b": {"$ref": "#/components/schemas/BOut"}}},
        "BOut": {"properties": {}},
    }
    with pytest.raises(KeyError):
        client_types.Types(described).text()
