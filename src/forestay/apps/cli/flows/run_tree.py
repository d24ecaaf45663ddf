"""A run as a tree of its tasks: the state of each, counts of its jobs by state, times, and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting, read_moment
from forestay.apps.cli.columns import cells, cut, padded

if TYPE_CHECKING:
    from forestay.client.api.schemas import IncidentJson, RunDetails, RunJson, TaskJson

MARKS = {
    "waiting": ("·", "dim"),
    "listing": ("●", "cyan"),
    "binding": ("●", "cyan"),
    "asking": ("?", "yellow"),
    "awaiting": ("●", "cyan"),
    "running": ("●", "cyan"),
    "faulted": ("!", "yellow"),
    "completed": ("✓", "green"),
    "forced_complete": ("✓", "green"),
    "skipped": ("-", "dim"),
    "failed": ("✗", "red"),
    "cancelled": ("-", "dim"),
}
"""A sign and a colour for each state; the state's name is beside them, so that neither is needed to read it."""
ENDED = frozenset({"completed", "forced_complete", "skipped", "failed", "cancelled"})
COLOURS = {
    "completed": "green",
    "forced_complete": "green",
    "running": "cyan",
    "asking": "yellow",
    "failed": "red",
    "broken": "red",
    "suspended": "yellow",
    "held": "yellow",
}
"""Of runs."""


class Counts(NamedTuple):
    """The jobs of a round as the store has them."""

    made: int = 0
    running: int = 0
    well: int = 0
    bad: int = 0


class Line(NamedTuple):
    """One line of the tree, in parts: the rails, the sign, the name and the rest."""

    rails: str
    mark: str
    colour: str
    text: str
    more: str = ""
    """The dimmed text."""
    done: bool = False
    """It can be left out if there is not enough space."""


def asking(waiting: Sequence[IncidentJson]) -> str:
    """A note that failures need attention, with the command that explains them."""
    first = waiting[0]
    how = f"forestay explain {first['job'][:8]}" if first["job"] else "forestay inbox"
    return f"{len(waiting)} {'failure needs' if len(waiting) == 1 else 'failures need'} attention: {how}"


@dataclass(frozen=True, slots=True)
class Tree:
    """The present state of a run."""

    run: RunDetails
    now: datetime
    counts: Mapping[str, Counts] = field(default_factory=dict)
    """By round; newer than the run's own counts."""
    waiting: Sequence[IncidentJson] = ()
    """Its failures that wait for a person."""

    def head(self) -> str:
        """The run in one line."""
        jobs = [self.count(task) for task in self.run["tasks"]]
        made, well, bad = sum(job.made for job in jobs), sum(job.well for job in jobs), sum(job.bad for job in jobs)
        parts = [lasting(self.age())]
        if made:
            parts.append(f"{well + bad:,} of {made:,} jobs ended" + (f", {bad:,} badly" if bad else ""))
        if self.run["compensations"] and self.run["phase"] == "compensating":
            parts.append(f"{self.run['compensations']} steps to undo")
        if self.run["holders"]:
            parts.append("held by " + ", ".join(self.run["holders"]))
        if self.waiting:
            parts.append(asking(self.waiting))
        elif self.run["state"] in {"suspended", "held"}:
            parts.append(f"to continue: forestay runs show {self.run['id'][:8]}")
        return neutral.line(f"{self.run['name']} {self.run['id'][:8]} {word(self.run)} · {' · '.join(parts)}")

    def age(self) -> float:
        return _between(self.run["started"], self.run["ended"], self.now)

    def count(self, task: TaskJson) -> Counts:
        """The more recent of the counts in the store and in the run."""
        known = self.counts.get(f"{task['id']}@{task['round']}", Counts())
        return Counts(
            max(known.made, task["count"]), known.running, max(known.well, task["well"]), max(known.bad, task["bad"])
        )

    def lines(self, width: int = 100) -> list[Line]:
        """The tasks, with inner tasks below the task that encloses them."""
        inside: dict[str, list[TaskJson]] = {}
        for task in self.run["tasks"]:
            inside.setdefault(container(task["id"]), []).append(task)
        widest = max((cells(_title(task)) + 2 * _depth(task) for task in self.run["tasks"]), default=0)
        return list(self._level("", inside, "", min(widest, 40), width))

    def _level(
        self, outer: str, inside: Mapping[str, Sequence[TaskJson]], rails: str, widest: int, width: int
    ) -> Iterator[Line]:
        tasks = inside.get(outer, ())
        for place, task in enumerate(tasks):
            last = place == len(tasks) - 1
            own = "" if not outer and not rails else rails + ("└ " if last else "├ ")
            mark, colour = MARKS.get(task["state"], ("?", ""))
            name = padded(cut(_title(task), widest), max(0, widest - len(own)))
            more = cut(self.told(task), max(10, width - widest - 4))
            yield Line(own, mark, colour, name, more, task["state"] in ENDED and task["state"] != "failed")
            below = "" if not outer and not rails else rails + ("  " if last else "│ ")
            yield from self._level(task["id"], inside, below + " ", widest, width)

    def told(self, task: TaskJson) -> str:
        """The details of a task, beside its name."""
        count = self.count(task)
        parts = [task["state"].replace("_", " ")]
        if count.made > 1:
            ended = f"{count.well + count.bad:,} of {count.made:,}"
            parts.append(ended + (f", {count.running:,} running" if count.running and not _ended(task) else ""))
        if count.bad and count.made > 1:
            parts.append(f"{count.bad:,} failed")
        if seconds := self._lasted(task):
            parts.append(lasting(seconds))
        if where := _where(task.get("domains") or {}):
            parts.append(where)
        if task["holders"]:
            parts.append("held by " + ", ".join(task["holders"]))
        if task["reason"]:
            parts.append(task["reason"])
        return neutral.line(" · ".join(parts))

    def _lasted(self, task: TaskJson) -> float | None:
        began = task.get("began")
        return _between(began, task.get("finished"), self.now) if began else None


def fitted(lines: Sequence[Line], room: int) -> list[Line]:
    """At most this many lines: completed tasks are left out first, then the last lines."""
    room = max(room, 3)
    if len(lines) <= room:
        return list(lines)
    spare = len(lines) - room + 1
    kept: list[Line] = []
    for line in lines:
        if spare and line.done:
            spare -= 1
        else:
            kept.append(line)
    left_out = len(lines) - len(kept[: room - 1])
    return [*kept[: room - 1], Line("", "…", "dim", f"and {left_out:,} more")]


def word(run: RunJson | RunDetails) -> str:
    return run["state"].replace("_", " ")


def container(task: str) -> str:
    """The task that encloses another: ``a@1/2/b`` is inside ``a``."""
    return task.rpartition("/")[0].rpartition("/")[0].rpartition("@")[0] if "/" in task else ""


def _where(domains: Mapping[str, int]) -> str:
    """In which domains the runs of a sub-flow are; a server of an earlier release does not say."""
    names = {name or "this domain": runs for name, runs in sorted(domains.items())}
    if len(names) == 1:
        return f"in {next(iter(names))}"
    return "in " + ", ".join(f"{name} ({runs})" for name, runs in names.items()) if names else ""


def _title(task: TaskJson) -> str:
    """Its task, and inside a loop the round: the part of its id between the loop and the task."""
    block = task["id"].rpartition("/")[0].rpartition("/")[2]
    return neutral.line(task["task"] + (f" ({_block(block)})" if block else ""))


def _block(block: str) -> str:
    return f"round {block}" if block.isdigit() else block


def _depth(task: TaskJson) -> int:
    return task["id"].count("/") // 2


def _ended(task: TaskJson) -> bool:
    return task["state"] in ENDED


def _between(began: str | None, ended: str | None, now: datetime) -> float:
    first, last = read_moment(began), read_moment(ended) or now
    return max(0.0, (last - first).total_seconds()) if first else 0.0
