"""The two flows of the campaign: one that ends well, with every pattern in it, and one that fails late and is undone; and one in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DIRECT_JOBS = 20
"""So many jobs a run looks after itself here; the product's 500 would only make trials longer."""
MANY = 30
"""Elements of the scatter: more than that, so that there is a shard."""

WELL = f"""
forestay: 1
name: well
params: {{size: 7, many: {MANY}}}
flows:
  inner:
    name: inner
    params: {{n: 0}}
    tasks:
      one: {{command: [do, "${{params.n}}"]}}
      two: {{command: [do], after: [one]}}
    outputs: {{n: "${{params.n}}"}}
tasks:
  first: {{command: [do]}}
  pick:
    after: [first]
    choose:
      branches:
        small: {{when: "params.size < 10", tasks: {{little: {{command: [do]}}}}}}
        large: {{when: "params.size > 5", tasks: {{much: {{command: [do]}}}}}}
      otherwise: {{tasks: {{none: {{command: [do]}}}}}}
  refine:
    after: [first]
    loop:
      at_most: 5
      until: iteration >= 2
      tasks: {{fit: {{command: [do, "${{iteration}}"]}}}}
  few: {{command: [do, "${{x}}"], after: [refine], scatter: {{x: [1, 2, 3]}}}}
  many: {{command: [do, "${{x}}"], after: [pick], scatter: {{x: {{range: [0, "${{params.many}}"]}}}}}}
  each: {{flow: inner, params: {{n: "${{x}}"}}, after: [pick], scatter: {{x: [5, 6]}}}}
  last: {{command: [do, "${{tasks.many.well}}"], after: [few, many, each]}}
outputs: {{well: "${{tasks.many.well}}", few: "${{tasks.few.well}}", runs: "${{tasks.each.count}}", code: "${{tasks.last.exit_code}}"}}
"""
UNDONE = """
forestay: 1
name: undone
flows:
  inner:
    name: inner
    tasks:
      b: {command: [do], compensate: {command: [undo, b]}}
      c: {command: [do], after: [b], compensate: {command: [undo, c]}}
tasks:
  a: {command: [do], compensate: {command: [undo, a]}}
  sub: {flow: inner, after: [a]}
  d: {command: [do], after: [sub], compensate: {command: [undo, d]}}
  e: {command: [do], after: [d], compensate: {command: [undo, e]}}
  fails: {command: [do], after: [e]}
"""
GROWN = """
from forestay.flows import flow, gather, job, scatter

@flow
async def grown(key: str):
    await job("first", ["do", key])

    async def branch(number):
        await job("one", ["do", str(number)])
        await job("two", ["do", str(number)])

    await gather(branch(number) for number in range(3))
    many = await scatter("many", ["do", "${n}"], {"n": range(4)})
    last = await job("last", ["do"])
    return {"well": many.well, "code": last.exit_code}
"""
"""A Python flow, in the site's folder."""
UNDOING = ["e", "d", "d", "c", "b", "a"]
"""The compensations as they must run: the last first, and the one that fails again before the next."""


def ended_with(code: int) -> dict[str, Any]:
    return {"outcome": "failure" if code else "ok", "exit_code": code}


@dataclass(slots=True)
class Fates:
    """How jobs end: by what they are and never by when they run, so that a second attempt of a job ends as the first did."""

    stumbles: dict[str, str] = field(default_factory=dict)
    """The first job of a compensation that fails once."""

    def facts(self, claim: Mapping[str, Any]) -> dict[str, Any]:
        """What the pilot says of a job's end."""
        return ended_with(self._exit_code(claim))

    def _exit_code(self, claim: Mapping[str, Any]) -> int:
        if claim["name"] == "fails":
            return 1
        if claim["specification"]["command"] == ["undo", "d"]:
            return int(self.stumbles.setdefault("d", claim["job"]) == claim["job"])
        return 0
