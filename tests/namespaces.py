"""Network namespaces joined by a bridge, and lines between them that can be cut: takes root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def network(bridge: str, net: str, spaces: Sequence[str]) -> Iterator[None]:
    """A bridge outside, at NET.254, and namespaces with a line to it: the first at NET.1, the next at NET.2."""
    with ExitStack() as after:
        ip("link", "add", bridge, "type", "bridge")
        after.callback(ip, "link", "del", bridge)
        ip("addr", "add", f"{net}.254/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for number, space in enumerate(spaces, start=1):
            ip("netns", "add", space)
            after.callback(ip, "netns", "del", space)
            ip("link", "add", f"{space}-o", "type", "veth", "peer", "name", f"{space}-i")
            ip("link", "set", f"{space}-i", "netns", space)
            ip("link", "set", f"{space}-o", "master", bridge)
            ip("link", "set", f"{space}-o", "up")
            inside = ("netns", "exec", space, "ip")
            ip(*inside, "addr", "add", f"{net}.{number}/24", "dev", f"{space}-i")
            ip(*inside, "link", "set", f"{space}-i", "up")
            ip(*inside, "link", "set", "lo", "up")
        yield


def cut(space: str, *addresses: str) -> None:
    """Nothing goes from there to these any more; what comes from them still arrives."""
    for address in addresses:
        ip("netns", "exec", space, "ip", "route", "add", "blackhole", f"{address}/32")


def join(space: str, *addresses: str) -> None:
    for address in addresses:
        ip("netns", "exec", space, "ip", "route", "del", "blackhole", f"{address}/32")
