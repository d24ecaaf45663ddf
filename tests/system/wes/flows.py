"""Flows that the tests run, and a folder of an operator with one in Python."""

from __future__ import annotations

from pathlib import Path

GREET = """
forestay: 1
name: greet
params: {who: nobody}
tasks:
  hello:
    command: [sh, -c, 'echo "hello $0"; echo to stderr >&2', "${params.who}"]
  twice: {command: [sh, -c, "echo again"], after: [hello]}
outputs: {code: "${tasks.twice.exit_code}"}
"""
FAILS = """
forestay: 1
name: fails
tasks:
  bad: {command: [sh, -c, "exit 3"]}
"""
LONG = """
forestay: 1
name: long
tasks:
  sleep: {command: [sleep, "600"]}
"""
READS = """
forestay: 1
name: reads
params: {data: null}
tasks:
  read: {command: [sh, -c, 'cat "$0"', "${params.data}"]}
"""
NESTED = """
forestay: 1
name: nested
flows:
  inner: {name: inner, params: {n: 0}, tasks: {one: {command: [echo, "${params.n}"]}}}
tasks:
  each: {flow: inner, params: {n: "${x}"}, scatter: {x: [1, 2, 3]}}
  last: {command: [echo], after: [each]}
"""
PYTHON = '''
from forestay.flows import flow, job


@flow
async def greeting(who: str = "nobody"):
    """Greet somebody."""
    done = await job("greet", ["echo", f"hello {who}"])
    return {"code": done.exit_code}
'''


def operators_folder(place: Path) -> Path:
    place.mkdir()
    (place / "greeting.py").write_text(PYTHON)
    return place
