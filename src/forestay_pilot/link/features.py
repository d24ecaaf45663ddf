"""The features of this machine that jobs may require: its system, its processor, and what the site adds."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_RELEASE = "/etc/os-release"
_MOST = 64


def machine_features(named: Iterable[str], release: str = _RELEASE) -> dict[str, str]:
    """What is found here, and ``NAME=VALUE`` of the site, which counts where both say something; raises ValueError."""
    features = {"os": system_name(release), "arch": platform.machine()}
    for text in named:
        name, sign, value = text.partition("=")
        if not sign or not _NAME.fullmatch(name):
            raise ValueError(f"a feature is NAME=VALUE, not {text!r}")
        if len(value) > 200 or any(ord(character) < 32 for character in value):
            raise ValueError(f"the value of the feature {name} is longer than 200 characters or has several lines")
        features[name] = value
    if len(features) > _MOST:
        raise ValueError(f"a pilot has at most {_MOST} features")
    return {name: value for name, value in features.items() if value}


def system_name(release: str = _RELEASE) -> str:
    """The system with its version in one word, such as ``el9``, ``debian12`` or ``ubuntu22.04``; empty if it does not say."""
    facts: dict[str, str] = {}
    try:
        with open(release, encoding="utf-8", errors="replace") as source:
            for line in source:
                name, _, value = line.strip().partition("=")
                facts[name] = value.strip("\"'")
    except OSError:
        return ""
    kind, _, word = facts.get("PLATFORM_ID", "").partition(":")
    if kind == "platform" and word:
        return word[:64]
    return os.path.basename(facts.get("ID", "") + facts.get("VERSION_ID", ""))[:64]
