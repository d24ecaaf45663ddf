"""Why an image could not be pulled: the tools' own messages, and their meaning for the job."""

from __future__ import annotations

import re

NOT_FOUND, DENIED, PLATFORM, NETWORK, CORRUPT, FULL, UNSUPPORTED, RUNTIME = (
    "not-found", "denied", "platform", "network", "corrupt", "ENOSPC", "unsupported", "runtime",
)  # fmt: skip

_WORDS = (
    (FULL, r"no space left|disk quota exceeded"),
    (PLATFORM, r"no image found in (image index|manifest list)|no child with platform|does not match the expected platform|could not run on the host|no matching manifest for"),
    (CORRUPT, r"digest (did not match|mismatch|verification)|does not match (the )?(expected )?digest|invalid checksum|not a valid|unexpected EOF|corrupt"),
    (NETWORK, r"connection (refused|reset)|time-?d? ?out|timeout|no such host|no route|unreachable|TLS handshake|temporary failure|too ?many ?requests|\b(429|50[0234])\b|: EOF\b|HTTP response to HTTPS|x509"),
    (DENIED, r"unauthorized|denied|forbidden|authentication required|invalid username|\b40[13]\b"),
    (NOT_FOUND, r"manifest unknown|name unknown|not found|unknown:|no such (file|image)|does not exist|did not resolve|\b404\b|invalid reference"),
)  # fmt: skip
_TABLE = [(name, re.compile(words, re.IGNORECASE)) for name, words in _WORDS]


class ImageError(Exception):
    """An image cannot be run on this host; `error` is one of the words above."""

    def __init__(self, error: str, words: str) -> None:
        super().__init__(words)
        self.error = error


def read_error(image: str, output: str) -> ImageError:
    """The error in a tool's output; `RUNTIME` where it has none that is known."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"(?i)error|fatal", line)] or lines
    last = telling[-1] if telling else "it said nothing"
    name = next((name for name, pattern in _TABLE if pattern.search(last)), RUNTIME)
    return ImageError(name, f"the image {image}: {last[:1500]}")
