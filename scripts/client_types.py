"""Writes the client's types of requests and answers from docs/reference/openapi.json; with ``--check`` says whether they are current.

Only what the client names is written, with everything inside it. Values of enumerations are plain text, because a newer server may have more of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DESCRIPTION = ROOT / "docs" / "reference" / "openapi.json"
PLACE = ROOT / "src" / "forestay" / "client" / "api" / "schemas.py"

NAMES = {
    "AcceptedOut": "AcceptedJson",
    "CallbackOut": "CallbackJson",
    "ColocateIn": "ColocateJson",
    "ColocateOut": "StoredColocateJson",
    "DecisionOut": "DecisionJson",
    "EndingOut": "LastJson",
    "EventAnswerOut": "EventAnswerJson",
    "EventIn": "NewEvent",
    "FlowOut": "StoredFlow",
    "HoldOut": "ClaimJson",
    "IncidentOut": "IncidentJson",
    "IncidentWholeOut": "IncidentWhole",
    "InputIn": "InputJson",
    "InputOut": "StoredInputJson",
    "JobIn": "NewJob",
    "JobOut": "Job",
    "LineOut": "TransitionJson",
    "ManifestOut": "ManifestJson",
    "OrderOut": "OrderJson",
    "ResourcesIn": "ResourcesJson",
    "ResourcesOut": "StoredResourcesJson",
    "RetryRecordOut": "RetryRecordJson",
    "RunDetailsOut": "RunDetails",
    "RunHistoryEventOut": "RunHistoryEventJson",
    "RunOut": "RunJson",
    "RunWaitOut": "RunWaitJson",
    "SpecificationIn": "SpecificationJson",
    "SpecificationOut": "StoredSpecificationJson",
    "StartedOut": "StartedRunJson",
    "StepOut": "StepJson",
    "StoryLineOut": "StoryLine",
    "StoryOut": "Story",
    "TaskOut": "TaskJson",
    "ToldIncidentOut": "ToldIncident",
    "WinnerOut": "WinnerJson",
    "WhyRunOut": "WhyRun",
}
"""What the description calls them, and what the client does."""
PARTIAL = {"EndingOut"}
"""Read as an empty one where there is none, so no field is required."""

HEAD = '''"""Requests and answers as they are in JSON, written by scripts/client_types.py from the interface's description.

Fields of a newer server are simply there as well.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict
'''

PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


class Types:
    """The types of one description."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = schemas
        self._classes: dict[str, str] = {}

    def text(self) -> str:
        """The whole module."""
        for schema in NAMES:
            self._reference(schema)
        return HEAD + "".join(f"\n\n{self._classes[name]}" for name in sorted(self._classes))

    def _reference(self, schema: str) -> str:
        described = self._schemas[schema]
        if "properties" not in described or described.get("additionalProperties") is True:
            return self._type(described)
        name = NAMES[schema]
        if name not in self._classes:
            self._classes[name] = ""  # a type may contain itself
            self._classes[name] = self._class(
                name, described, () if schema in PARTIAL else described.get("required", ())
            )
        return name

    def _class(self, name: str, described: Mapping[str, Any], required: Sequence[str]) -> str:
        lines = [f"class {name}(TypedDict):"]
        if text := described.get("description"):
            lines += [f'    """{text}"""', ""]
        for field, schema in described["properties"].items():
            kind = self._type(schema)
            lines.append(f"    {field}: {kind if field in required else f'NotRequired[{kind}]'}")
        return "\n".join(lines) + "\n"

    def _type(self, schema: Mapping[str, Any]) -> str:
        if "$ref" in schema:
            return self._reference(schema["$ref"].rpartition("/")[2])
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(self._type(other) for other in schema["anyOf"]))
        kind = schema.get("type")
        if kind == "array":
            return f"list[{self._type(schema['items'])}]"
        if kind == "object":
            values = schema.get("additionalProperties", schema.get("patternProperties"))
            if values is schema.get("patternProperties") and values:
                (values,) = values.values()
            return f"dict[str, {self._type(values) if isinstance(values, Mapping) else 'Any'}]"
        return PLAIN.get(str(kind), "Any")


def written() -> str:
    """The module for the description as it stands."""
    return Types(json.loads(DESCRIPTION.read_text(encoding="utf-8"))["components"]["schemas"]).text()


def main() -> int:
    if "--check" in sys.argv[1:]:
        if PLACE.exists() and PLACE.read_text(encoding="utf-8") == written():
            return 0
        print(f"{PLACE.name} is not current; run: just openapi", file=sys.stderr)
        return 1
    PLACE.write_text(written(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
