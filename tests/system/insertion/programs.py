"""What the flows call: a program of the user's that says its number, after what it meets on the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

NODE = r"""
node=${SLURMD_NODENAME:-} pid=$$
while [ -z "$node" ] && [ "$pid" -gt 1 ]; do
  node=$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^SLURMD_NODENAME=//p') pid=$(awk '{ print $4 }' "/proc/$pid/stat")
done
"""
"""Which node it is on. All nodes are on one machine here, so the host's name does not tell; some engines give their programs an environment of their own."""


def greedy() -> str:
    """Wants 700 MB, long enough for Slurm to see it."""
    return """#!/usr/bin/env python3
import sys, time
wanted = bytearray(700 * 2**20)
time.sleep(4)
print(sys.argv[1])
"""


def stuck_on(slow: Path) -> str:
    """Works, but not on a node that has a file here: there it goes on only when the file is gone."""
    return f"""#!/bin/sh
{NODE}
echo "$1 on $node" >>{slow.parent}/begun
sleep 1
while [ -e {slow}/"$node" ]; do sleep 0.2; done
echo "$1"
"""


def fetching(replicas: Mapping[str, str]) -> str:
    """Fetches what it says from the replica next to its node."""
    runs = "\n".join(f"  {node}) replica={url} ;;" for node, url in replicas.items())
    return f"""#!/bin/sh
{NODE}
case $node in
{runs}
esac
curl --silent --show-error --fail --max-time 10 "$replica/part$1"
"""
