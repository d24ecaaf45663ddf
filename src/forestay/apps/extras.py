"""Names the extra of the package that brings a missing library, so that a command can say so in one line.

`pip install forestay` brings the client, the shim, the watcher and the pilot. A test holds this table against pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from forestay.ports.errors import Permanent

MODULES: dict[str, tuple[str, ...]] = {
    "server": (
        "aiohttp", "aiosqlite", "asyncpg", "cel_expr_python", "cryptography", "fastapi", "httptools", "joserfc", "opensearchpy",
        "prometheus_client", "python_multipart", "sqlalchemy", "starlette", "uvicorn", "uvloop",
    ),
    "flows": ("cryptography", "google", "temporalio"),
    "rules": ("cel_expr_python",),
    "site": ("psij",),
    "s3": ("botocore",),
    "otel": ("opentelemetry",),
    "apprise": ("apprise",),
}  # fmt: skip
"""The modules that our code imports of each extra."""


class MissingExtra(Permanent):
    """Something needs packages that are not installed."""

    def __init__(self, what: str, extras: Iterable[str]) -> None:
        super().__init__(f"{what} needs packages that are not installed: pip install 'forestay[{','.join(extras)}]'")


def require(what: str, *extras: str) -> None:
    """Refuse before anything is imported, and name all extras that are missing, not only the first."""
    missing = [extra for extra in extras if any(not _installed(module) for module in MODULES[extra])]
    if missing:
        raise MissingExtra(what, missing)


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """What to install after an import failed; None for a module that is in no extra."""
    name = (error.name or "").partition(".")[0]
    # CEL and cryptography are in two extras: the smaller one suffices if no process has required the other.
    extras = sorted((len(modules), extra) for extra, modules in MODULES.items() if name in modules)
    return MissingExtra(f"what uses {name}", [extras[0][1]]) if extras else None


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # a substituted module has no specification
        return True
