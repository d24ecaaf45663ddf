"""The tone of a line: whether it tells of trouble, only warns of it, or only informs. All take a line in lower case."""

from __future__ import annotations

import re

_WARNS = re.compile(
    # An event of Kubernetes is called a warning also when it is the end of a pod; its reason stands in a column of its own.
    r"\bwarn(?:ing|ings)?\b(?!\s{2,}[a-z]{4,40}\s)|\w(?:user|runtime|deprecation|future|settingwithcopy|resource)?warning: |\bdeprecat|^\[w\]"
    r"|\bre-?trying\b|\bwill (?:be )?retr|\bretry(?:ing)? (?:in|after|#?[0-9])|\bretry\(|\bretries left\b|\battempt [0-9]+ (?:of|/)"
    r"|\bignor(?:ed|ing)\b|\bnon-?fatal\b|\bskipping\b|\busing (?:builtin|default|fallback)s?\b|\bfall(?:ing|s)? ?back\b"
    r"|\b(?:0|no|without|zero) (?:errors?|failures?|problems?)\b|\berrors?: ?0\b|\bmight be corrupted:|\bsucceeded\b|\brecovered\b"
    r"|\berrors? (?:rate|correct|model|bars?|estimat|toleranc|threshold)|\bif (?:the|this) (?:problem|error|issue) persists"
)
_LEVEL = re.compile(r"^.{0,60}?(?:\b(?:info|debug|trace|notice|verbose)\b|\[[imd]\]|\[m::)")
_TROUBLE = re.compile(
    r"error|exception|traceback|fail|fatal|abort|kill|cannot|can't|could not|unable|denied|no such|not found|terminat|panic|core dump|refused|invalid|exceed|exit|signal|^\s+at |^\s*file \"|^\s*caused by"
)


def warns(line: str) -> bool:
    """Whether it only warns, says that something is tried again, or counts errors that were none."""
    return _WARNS.search(line) is not None


def tells_trouble(line: str) -> bool:
    """Whether its words are those of something that went wrong."""
    return _TROUBLE.search(line) is not None


def only_informs(line: str) -> bool:
    """Whether its own level says that nothing is wrong, and none of its words disagrees."""
    return _LEVEL.search(line) is not None and not tells_trouble(line)
