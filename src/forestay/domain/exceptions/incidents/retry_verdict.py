"""How often, and after which wait, a retry is worthwhile: part of each finding, beside the cause.

The patterns say what another try needs. This module adds the rest of the evidence: how long outputs were waited for, and whether a failure that matches no pattern shows signs of the infrastructure.
"""

from __future__ import annotations

import re
from dataclasses import replace

from forestay.domain.exceptions.causes.cause import SURE, Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.evidence.evidence import Evidence, tells_trouble, warns
from forestay.domain.exceptions.incidents.retry_policy import INFRASTRUCTURE

TRIES_WHEN_SURE = 4
"""For a failure that is certainly caused by the infrastructure; the waits between tries are the default policy's."""
SOON, LATER = 60, 600
"""Seconds before the single retry of a transient failure, and of an unknown one."""
LONG_FOR_OUTPUTS = 60
"""Seconds: after so long a wait, outputs are not missing because of a slow file system."""
LAST_LINES, ORDINARY = 12, 4
"""How many last lines of a log are searched for signs, up to how many ordinary lines in a row: errors before those were survived."""
OUTSIDE = {9: "SIGKILL", 15: "SIGTERM"}
"""Signals that programs do not send themselves."""

_TRYING = (RetryNeed.SAME, RetryNeed.ELSEWHERE)
_WAITED = re.compile(r"missing files after (\d{1,6}) seconds|latency[- _]wait\D{0,20}(\d{1,6})")
_SIGNS = re.compile(
    r"\bnetwork\b|\bconnection (?:was |is )?(?:lost|closed|refused|reset|broken|dropped|error|timed)|\bsockets?\b|\bunreachable\b|\b(?:temporarily |service )unavailable\b|\bgateway\b"
    r"|\bnfs\d?\b|\blustre\b|\bgpfs\b|\bbeegfs\b|\bcephfs?\b|\bstale\b|\bi/o error\b|\binput/output error\b|\bstorage (?:server|element|pool|target)\b|\bremote i/o\b"
    r"|\bslurm(?:ctld|d|dbd)\b|\bmunged?\b|\bcondor_\w{1,30}|\bpbs_(?:mom|server)\b|\bkubelet\b|\bmbatchd\b|\bsge_\w{1,20}"
    r"|\binfiniband\b|\bib_\w{1,30}|\bmlx\d\b|\bucx\b|\blibfabric\b|\bpmix\w{0,10}\b"
    r"|\bnode (?:fail|down|lost|unresponsive|drain)|\bhardware error\b|\buncorrectable\b|\bxid\b|\bfallen off the bus\b|\bpilots? (?:was |is )?(?:lost|gone|died)\b"
)
"""Words of the network, of storage, of schedulers and of nodes, in lower case. Launchers such as srun are not among them: they repeat every failure of what they started."""


def with_verdict(finding: CauseFinding, evidence: Evidence) -> CauseFinding:
    """The finding with the recommended number of tries and the wait before the first."""
    if finding.cause is Cause.OUTPUT_MISSING and finding.retry is RetryNeed.SAME:
        waited = seconds_waited(evidence)
        if waited is not None and waited >= LONG_FOR_OUTPUTS:
            words = f"{finding.words} It was waited for them for {waited} s, so they were hardly late.".strip()
            return replace(finding, retry=RetryNeed.NO, tries=0, wait=0, words=words)
    if finding.cause is Cause.UNKNOWN and finding.retry is RetryNeed.NO:
        sign = infrastructure_sign(evidence)
        if sign:
            words = f"{finding.words} It may be the infrastructure: {sign}.".strip()
            return replace(finding, retry=RetryNeed.SAME, tries=1, wait=LATER, words=words)
    if finding.retry not in _TRYING:
        return replace(finding, tries=0, wait=0)
    if finding.cause in INFRASTRUCTURE and finding.confidence >= SURE:
        return replace(finding, tries=TRIES_WHEN_SURE, wait=0)
    return replace(finding, tries=1, wait=LATER if finding.cause is Cause.UNKNOWN else SOON)


def seconds_waited(evidence: Evidence) -> int | None:
    """How long outputs were waited for according to the log; None if it does not say."""
    seconds = [
        int(match[1] or match[2]) for line in evidence.log_tail if (match := _WAITED.search(line.lower())) is not None
    ]
    return max(seconds, default=None)


def infrastructure_sign(evidence: Evidence) -> str:
    """The part of the evidence of an unknown failure that points to the infrastructure; empty if none does."""
    outside = sorted(evidence.signals & OUTSIDE.keys()) if not evidence.oom_kills else []
    if outside:
        return f"{OUTSIDE[outside[0]]} came from outside the job"
    ordinary = 0
    for text in (evidence.transfer, evidence.scheduler_reason, *_last_lines(evidence)):
        lowered = text.lower()
        if warns(lowered) or not tells_trouble(lowered):
            ordinary += bool(text)
            if ordinary >= ORDINARY:
                break
            continue
        ordinary = 0
        match = _SIGNS.search(lowered)
        if match is not None:
            return f"its last words name “{match[0].strip()}”"
    return ""


def _last_lines(evidence: Evidence) -> list[str]:
    """The last first."""
    return [line for line in reversed(evidence.log_tail) if line.strip()][:LAST_LINES]


_NUMBERS = {1: "once", 2: "twice"}


def verdict_words(retry: RetryNeed, tries: int, wait: int) -> str:
    """The verdict in a few words: `same, once, after 10 min`."""
    if not tries or retry not in _TRYING:
        return retry.value
    often = _NUMBERS.get(tries, f"up to {tries} times")
    return f"{retry.value}, {often}, {wait_words(wait)}"


def wait_words(seconds: int) -> str:
    """`at once`, `after 45 s`, `after 10 min`, `after 2 h`."""
    if not seconds:
        return "at once"
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"after {seconds // unit} {name}"
    return f"after {seconds} s"
