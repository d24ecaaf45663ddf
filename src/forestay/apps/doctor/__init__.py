"""`forestay doctor`: what is missing or wrong in an installation, and what to do about each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from forestay.apps.config.settings import Settings, load
from forestay.apps.doctor import machine, seen_by_client
from forestay.apps.doctor.check_result import GOOD, MARKS, MISSING, NOTE, CheckResult
from forestay.apps.extras import MissingExtra, require
from forestay.ports.errors import Permanent

Check = Callable[[Settings], Iterator[CheckResult]]


def _checks() -> tuple[Check, ...]:
    """The checks for this machine; without the libraries of a server only those of a client."""
    try:
        require("a server", "server")
    except MissingExtra as error:
        client_only = CheckResult("install", GOOD, f"client, shim, watcher and pilot; {error}")
        return (machine.names, lambda _: iter([client_only]), seen_by_client.server)
    from forestay.apps.doctor import certificates, dependencies, secret_files

    return (
        machine.names,
        machine.state,
        machine.folders,
        machine.pages,
        machine.open_files,
        secret_files.key,
        secret_files.others,
        dependencies.store,
        dependencies.temporal,
        dependencies.storage,
        certificates.all_of_them,
        seen_by_client.server,
    )


def run_doctor(state: Path | None, *, as_json: bool) -> int:
    """Run all checks, print the results, and return the exit code: 1 if something is missing."""
    results = list(examine(state))
    if as_json:
        sys.stdout.write(json.dumps({"findings": [asdict(result) for result in results]}) + "\n")
    else:
        for result in results:
            sys.stdout.write(f"{MARKS[result.state]:<8} {result.about:<12} {result.words}\n")
            if result.remedy:
                sys.stdout.write(f"{'':<21} {result.remedy}\n")
    missing = sum(result.state == MISSING for result in results)
    if not as_json:
        away = any(result.about == "server" and result.state != GOOD for result in results)
        good = (
            "Nothing is missing on this machine, but no server answered; see the advice for it."
            if away
            else "Nothing is missing."
        )
        sys.stderr.write(f"{good}\n" if not missing else f"{missing} missing; see the advice for each.\n")
    return 1 if missing else 0


def examine(state: Path | None) -> Iterator[CheckResult]:
    """All results; a failing check does not stop the others."""
    yield from machine.system()
    try:
        settings = load(state=state)
    except Permanent as error:
        yield CheckResult(
            "settings", MISSING, str(error), "Correct the file named by FORESTAY_CONFIG, or the FORESTAY_ variables."
        )
        return
    for check in _checks():
        yield from check(settings)


__all__ = ["GOOD", "MISSING", "NOTE", "CheckResult", "examine", "run_doctor"]
