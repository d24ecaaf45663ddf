"""The state diagram of a job, as SVG, with the transitions that some jobs took."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from forestay.client.api.schemas import TransitionJson
from forestay.domain.jobs.job_document import State
from forestay.domain.jobs.lifecycle import TRANSITIONS

WIDTH, HEIGHT = 760, 300
BOX_WIDTH, BOX_HEIGHT = 130, 40
CENTRES = {
    State.AVAILABLE: (75, 60),
    State.RUNNING: (380, 60),
    State.COMPLETED: (685, 60),
    State.FAULTED: (380, 220),
    State.FAILED: (685, 220),
}
"""The states of an execution; those that only a person's command leads to are left out."""
BEND = 22
"""How far an arrow bends, so that the one back has a place of its own."""


def state_diagram(stories: Iterable[Sequence[TransitionJson]]) -> str:
    """All transitions between different states that the lifecycle allows; those that were taken stand out, with how often."""
    taken = Counter(
        (State(before["state"]), State(after["state"]), after["event"])
        for story in stories
        for before, after in pairwise(story)
        if before["state"] != after["state"]
    )
    allowed = {
        (before, after)
        for (before, _), after in TRANSITIONS.items()
        if before != after and {before, after} <= CENTRES.keys()
    }
    arrows = "\n".join(_arrow(before, after, taken) for before, after in sorted(allowed))
    boxes = "\n".join(
        _box(state, entered=any(state in (before, after) for before, after, _ in taken)) for state in CENTRES
    )
    return f"""<svg class="diagram" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="State diagram of the jobs: {_text(_in_words(taken))}">
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="context-stroke"/></marker></defs>
{arrows}
{boxes}
</svg>"""


def _in_words(taken: Counter[tuple[State, State, str]]) -> str:
    return ", ".join(
        f"{before} to {after} by {event} {count} times" for (before, after, event), count in sorted(taken.items())
    )


def _box(state: State, *, entered: bool) -> str:
    x, y = CENTRES[state]
    kind = "entered" if entered else "idle"
    return (
        f'<g class="{kind}"><rect x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8"/>'
        f'<text x="{x}" y="{y + 5}">{state}</text></g>'
    )


def _arrow(before: State, after: State, taken: Counter[tuple[State, State, str]]) -> str:
    events = {event: count for (left, entered, event), count in taken.items() if (left, entered) == (before, after)}
    (x1, y1), (x2, y2) = CENTRES[before], CENTRES[after]
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    right = ((y1 - y2) / length, (x2 - x1) / length)
    ends = [_border(CENTRES[before], (x2, y2)), _border(CENTRES[after], (x1, y1))]
    (x1, y1), (x2, y2) = [(x + right[0] * 6, y + right[1] * 6) for x, y in ends]
    middle = ((x1 + x2) / 2 + right[0] * BEND, (y1 + y2) / 2 + right[1] * BEND)
    words = ", ".join(f"{event} × {count}" for event, count in sorted(events.items()))
    label = f'<text x="{middle[0]:.0f}" y="{middle[1] + 4:.0f}">{_text(words)}</text>' if words else ""
    kind = "taken" if events else "idle"
    return f'<g class="{kind}"><path d="M{x1:.0f} {y1:.0f}Q{middle[0]:.0f} {middle[1]:.0f} {x2:.0f} {y2:.0f}" marker-end="url(#tip)"/>{label}</g>'


def _border(centre: tuple[float, float], toward: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the centre of a box leaves it."""
    across, down = toward[0] - centre[0], toward[1] - centre[1]
    share = min(
        BOX_WIDTH / 2 / abs(across) if across else float("inf"), BOX_HEIGHT / 2 / abs(down) if down else float("inf")
    )
    return centre[0] + across * share, centre[1] + down * share


def _text(words: str) -> str:
    return html.escape(words)
