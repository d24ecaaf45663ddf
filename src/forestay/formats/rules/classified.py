"""Evidence records, one a line, and their classification, one a line: the format of `forestay classify`.

An invalid line is answered too, with an error: one bad line among thousands must not affect the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.incidents.retry_policy import with_verdict
from forestay.domain.rules.advice import verdict_of
from forestay.formats.rules.evidence_json import finding_to_json, read_evidence

LONGEST_RECORD = 16 * 1024 * 1024


def answers(source: BinaryIO, classifier: Classifier) -> Iterator[dict[str, Any]]:
    """One answer per line, in the same order."""
    while line := source.readline(LONGEST_RECORD + 1):
        if len(line) > LONGEST_RECORD:
            while not line.endswith(b"\n") and (line := source.readline(LONGEST_RECORD)):
                pass
            yield {"error": f"the line is longer than {LONGEST_RECORD} bytes"}
        else:
            yield answer(line, classifier)


def answer(line: bytes, classifier: Classifier) -> dict[str, Any]:
    """The classification of one line, or its error."""
    try:
        plain = json.loads(line.decode("utf-8", "replace").removeprefix("\ufeff"))
    except RecursionError:
        return {"error": "this is nested too deep"}
    except ValueError as error:
        return {"error": f"invalid JSON: {error}" if line.strip() else "the line is empty"}
    if not isinstance(plain, dict):
        return {"error": 'an evidence record is a JSON object, such as {"exit_code": 137}'}
    evidence = read_evidence(plain)
    return finding_to_json(with_verdict(classifier.classify(evidence), evidence))


def verdict_text(reply: dict[str, Any]) -> str:
    """An answer's advice on another try: `same, once, after 10 min`."""
    return verdict_of(reply)
