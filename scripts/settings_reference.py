"""Writes docs/reference/settings.md from the settings themselves; a test compares the two.

Run with `uv run python scripts/settings_reference.py` after a change of a setting.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from forestay.apps.config.settings import Settings
from forestay.apps.config.site_settings import SiteSettings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"
HEAD = """# Settings

<!-- Written by scripts/settings_reference.py from the settings themselves. -->

Servers, reconcilers, orchestrators and `forestay dev` read their settings from command-line options, the environment (`FORESTAY_` and the name in capitals), a TOML file named by
`FORESTAY_CONFIG`, and the defaults, in this order of precedence. In the environment, lists are separated by commas and tables are JSON. A process with an invalid setting exits at its
start and names the setting and the error. Secrets are never settings: a setting names the file or the variable that contains them.

## Settings of the processes
"""
SITE = """## Settings of a site agent

One TOML file, named by `forestay site --config FILE`. Sizes may be written as `4 GiB`, times as `90 min`. [Start pilots on a Slurm cluster](../how-to/site-agent.md) has a complete example.
"""


def words(model: type[BaseModel]) -> dict[str, str]:
    """What is written below each field, by its name."""
    texts: dict[str, str] = {}
    for entry in reversed(model.__mro__):
        if issubclass(entry, BaseModel) and entry is not BaseModel:
            (body,) = (node for node in ast.parse(inspect.getsource(entry)).body if isinstance(node, ast.ClassDef))
            for field, text in zip(body.body, body.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                ):
                    texts[getattr(field.target, "id", "")] = " ".join(str(text.value.value).split())
    return texts


def tables(annotation: Any) -> Iterator[type[BaseModel]]:
    """The tables that a setting is made of."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from tables(part)


def _plain(value: object) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, BaseModel):
        return ""
    if isinstance(value, tuple | list):
        return f"`{', '.join(str(entry) for entry in value)}`" if value else ""
    if value is None or value == "" or value == {}:
        return ""
    return f"`{value if isinstance(value, str | Path) else json.dumps(value)}`"


def table(model: type[BaseModel]) -> str:
    returned_words = words(model)
    lines = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for name, field in model.model_fields.items():
        if field.is_required():
            default = "required"
        elif field.default is PydanticUndefined:
            default = ""  # made when the process starts
        else:
            default = _plain(field.default)
        lines.append(f"| `{name}` | {default} | {returned_words.get(name, '').replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def parts(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[str]:
    """The tables inside a model's settings, each once."""
    for name, field in model.model_fields.items():
        for inner in tables(field.annotation):
            if inner not in seen:
                seen.add(inner)
                summary = " ".join((inner.__doc__ or "").split())
                yield f"### In `{name}`\n\n{summary}\n\n{table(inner)}"
                yield from parts(inner, seen)


def page() -> str:
    """The whole page as it should be."""
    processes = [HEAD, table(Settings), *parts(Settings, {Settings})]
    return "\n".join([*processes, SITE, table(SiteSettings), *parts(SiteSettings, {SiteSettings})])


def silent() -> list[str]:
    """Settings of processes that say nothing about themselves."""
    returned_words = words(Settings)
    return [name for name in Settings.model_fields if name not in returned_words]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
