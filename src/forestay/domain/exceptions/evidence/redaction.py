"""Removes secrets from stored lines: log lines are shown to others, so anything that looks like a key is masked.

Each match is replaced by ``[redacted]``. Redaction is idempotent, and masks too much rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

GONE = "[redacted]"

_NAME = r"(?:[A-Za-z0-9_.-]{0,40}(?:token|secret|passw(?:or)?d|passwd|pwd|passphrase|api[_-]?key|apikey|access[_-]?key|private[_-]?key|secret[_-]?key|credentials?|auth[_-]?key|session[_-]?key|account[_-]?key|sas[_-]?key)(?:[_-][A-Za-z0-9]{1,20}){0,2})"
_VALUE = r"(?:\"[^\"\n]{1,4000}\"|'[^'\n]{1,4000}'|[^\s\"',;&)}\]]{1,4000})"
_KEEP = r"(?!\[redacted\]|\"\[redacted\]\"|'\[redacted\]')"

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # A private key, with its end or without.
    (re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)", re.S), GONE),
    # Headers that carry credentials, with any scheme.
    (re.compile(rf"(?i)\b((?:proxy-)?authorization\b[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?){_KEEP}[^\n\"']{{1,4000}}"), rf"\1{GONE}"),
    (re.compile(rf"(?i)\b((?:set-)?cookie\b[\"']?\s{{0,4}}:\s{{0,4}}[\"']?){_KEEP}[^\n\"']{{1,4000}}"), rf"\1{GONE}"),
    (re.compile(rf"(?i)\b(x-(?:[a-z0-9]{{1,20}}-){{0,3}}(?:token|key|secret)[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?){_KEEP}[^\s\"']{{1,4000}}"), rf"\1{GONE}"),
    (re.compile(r"(?i)\b((?:bearer|basic)\s{1,4})(?!\[redacted\])[A-Za-z0-9+/=_.~-]{8,4000}"), rf"\1{GONE}"),
    # A password in an address: the user may stay.
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,30}://[^\s/:@\"']{0,200}):(?!\[redacted\]@)[^\s/@\"']{1,400}@"), rf"\1:{GONE}@"),
    # Signed addresses.
    (re.compile(rf"(?i)([?&](?:x-amz-(?:signature|credential|security-token)|sig|signature|awsaccesskeyid|token|access_token|key|x-goog-signature|x-goog-credential)=){_KEEP}[^\s&\"'<>]{{1,4000}}"), rf"\1{GONE}"),
    # Keys with a recognisable format.
    (re.compile(r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA)[A-Z0-9]{12,20}\b"), GONE),
    (re.compile(r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,255}\b|\bgithub_pat_[A-Za-z0-9_]{20,255}\b|\bglpat-[A-Za-z0-9_-]{16,64}"), GONE),
    (re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,250}|\bhf_[A-Za-z0-9]{20,64}\b|\bsk-[A-Za-z0-9_-]{20,250}|\bAIza[A-Za-z0-9_-]{30,50}"), GONE),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{4,4000}(?:\.[A-Za-z0-9_-]{0,4000})?"), GONE),
    (re.compile(r"\bfse-[0-9a-f]{16,128}"), GONE),
    # NAME_TOKEN=…, "password": "…", --password …
    (re.compile(rf"(?i)(?<![A-Za-z0-9])({_NAME}[\"']?\s{{0,4}}(?:=|:(?!//))\s{{0,4}}){_KEEP}{_VALUE}"), rf"\1{GONE}"),
    (re.compile(rf"(?i)((?:^|\s)--?(?:password|passwd|token|secret|api-key|access-key|secret-key)\s{{1,4}}){_KEEP}(?!-){_VALUE}"), rf"\1{GONE}"),
)  # fmt: skip
_HINTS = (
    "token", "secret", "passw", "pwd", "passphrase", "key", "credential", "authorization", "cookie", "bearer", "basic", "://", "sig", "akia", "asia",
    "agpa", "aida", "aroa", "anpa", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat", "glpat", "xox", "hf_", "sk-", "aiza", "eyj", "fse-",
)  # fmt: skip


def redacted(text: str) -> str:
    """The text without what looks like a secret."""
    lowered = text.lower()
    # Without a generator, which takes twice as long: every line that is shown is looked at.
    if not any(map(lowered.__contains__, _HINTS)):
        return text
    # The result of one rule may match another; a second round finds it, and a third changes nothing.
    for _ in range(4):
        before = text
        for look, put in _RULES:
            text = look.sub(put, text)
        if text == before:
            break
    return text


def redacted_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Redact the lines of one log together: a private key may span many of them."""
    return tuple(redacted("\n".join(lines)).split("\n"))


def redacted_value(value: object, name: str = "") -> object:
    """A plain value of any depth, redacted; a value under a suspicious name is masked completely."""
    if isinstance(value, str):
        return GONE if name and value and _TELLING.fullmatch(name) else redacted(value)
    if isinstance(value, Mapping):
        return {str(key): redacted_value(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_value(inner, name) for inner in value]
    return value


_TELLING = re.compile(_NAME, re.I)
