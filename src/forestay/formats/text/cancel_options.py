"""The arguments of Slurm's cancel command: which jobs a call is about, and whether it ends them."""

from __future__ import annotations

import getopt
import re
from collections.abc import Iterator, Sequence

from forestay.domain.sites.cancel_call import CancelCall, JobSelector

SHORT = "A:bcCfHiM:n:p:Qq:R:s:t:u:vVw:"
LONG = [
    "account=", "admin-comment=", "autocomplete=", "batch", "clusters=", "cron", "ctld", "full", "help", "hurry", "interactive", "jobname=", "me", "name=",
    "nodelist=", "partition=", "qos=", "quiet", "reservation=", "sibling=", "signal=", "state=", "usage", "user=", "verbose", "version", "wckey=",
]  # fmt: skip
FILTERS = {
    "-A", "-n", "-p", "-q", "-R", "-t", "-u", "-w", "--account", "--jobname", "--me", "--name", "--nodelist", "--partition", "--qos", "--reservation",
    "--state", "--user", "--wckey",
}  # fmt: skip
"""Options that select jobs without naming them by id."""
NO_CALL = {"-V", "--help", "--usage", "--version", "--autocomplete"}
ENDS = frozenset({"HUP", "INT", "QUIT", "ABRT", "KILL", "TERM", "1", "2", "3", "6", "9", "15"})
"""Signals that end a process that does not expect them."""
_JOB = re.compile(r"(\d+)(?:_(?:(\d+)|\[([\d,:%-]+)\]))?")


def read_cancel_call(arguments: Sequence[str], by: int, at: float) -> CancelCall | None:
    """The call; None if it cancels no job, for example because it only sends a signal that jobs expect."""
    try:
        options, names = getopt.gnu_getopt(list(arguments), SHORT, LONG)
    except getopt.GetoptError:
        return None
    given = dict(options)
    signal = given.get("-s", given.get("--signal", "")).upper().removeprefix("SIG")
    jobs = tuple(selector for name in ",".join(names).split() for selector in _selectors(name))
    if given.keys() & NO_CALL or (signal and signal not in ENDS) or (names and not jobs):
        return None
    if not jobs and not given.keys() & FILTERS:
        return None
    users = _values(given, "-u", "--user") | ({str(by)} if "--me" in given else frozenset())
    states = frozenset(state.upper() for state in _values(given, "-t", "--state"))
    return CancelCall(by, at, jobs, _values(given, "-n", "--name", "--jobname"), users, states, bool(signal))


def _values(given: dict[str, str], *names: str) -> frozenset[str]:
    return frozenset(value for name in names for value in given.get(name, "").split(",") if value)


def _selectors(words: str) -> Iterator[JobSelector]:
    """Jobs, arrays and elements; steps of jobs are left out."""
    for part in re.split(r",(?![^\[]*\])", words):
        match = _JOB.fullmatch(part)
        if match is None:
            continue
        job, element, elements = match.groups()
        if element is not None:
            yield JobSelector(job, int(element), int(element))
        elif elements is None:
            yield JobSelector(job)
        else:
            for low, high in re.findall(r"(\d+)(?:-(\d+))?(?::\d+)?", elements.partition("%")[0]):
                yield JobSelector(job, int(low), int(high or low))
