"""Activates a rule after its replay over all recorded failures.

The replay is part of the promotion: there is no promotion without one, and its summary is stored with the version that it makes. A rule with wrong verdicts, or with a condition that errs on some
incident, is refused unless that is confirmed and a reason is given; the reason and the summary go into the audit log before the rule acts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forestay.domain.rules.replay import RuleTally, wrong_in
from forestay.domain.rules.rule_set import RuleSetId
from forestay.formats.rules.replay_json import replay_summary, tally_shown, wrong_in_words
from forestay.services.rules.rule_editor import Edited, NotEdited, RuleEditor
from forestay.services.rules.rule_replay import NotReplayed, Progress, Replayed, ReplayRequest, RuleReplay, beneath

Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NotPromoted:
    """The replay blocks the promotion; it can be confirmed with a reason."""

    reasons: tuple[str, ...]
    examples: tuple[str, ...]
    """Incidents on which the rule would decide wrongly."""
    summary: Summary


@dataclass(slots=True)
class RulePromotion:
    """The service."""

    edit: RuleEditor
    replaying: RuleReplay

    async def promote(
        self,
        rule_set: RuleSetId,
        rule: str,
        *,
        by: str,
        reason: str = "",
        confirmed: bool = False,
        about_to: Callable[[Summary], Awaitable[None]],
        progress: Progress = lambda _: None,
    ) -> Edited | NotEdited | NotPromoted:
        """Replay, judge, and promote. `about_to` is called with the summary before the rule is activated: if it raises, nothing is done."""
        done = await self.replaying.replay(ReplayRequest(rule_set, promoted=rule, shown=0), progress)
        if isinstance(done, NotReplayed):
            return NotEdited(done.reasons, done.problems)
        # Refinements beneath it act only through it, so this promotion is responsible for their wrong decisions.
        names = [f"{rule_set}#{name}" for name in beneath(await self.edit.rules.load(rule_set, done.version), rule)]
        wrong = wrong_in(done.report, names)
        tallies = [tally for name in names if (tally := done.report.rules.get(name)) is not None]
        errors = sum(tally.errors for tally in tallies)
        summary = _summary(done, tallies, reason if confirmed else "")
        reasons = wrong_in_words(wrong)
        if errors:
            reasons.append(f"{errors} × its condition has an error, and no action would be taken")
        if reasons and not (confirmed and reason):
            examples = tuple(name for tally in tallies for name in tally.examples)
            return NotPromoted(tuple(reasons), examples, summary)
        await about_to(summary)
        return await self.edit.promote(rule_set, rule, by=by, replayed=summary, expected=done.version)


def _summary(done: Replayed, tallies: list[RuleTally], reason: str) -> dict[str, Any]:
    """The summary stored with the version: the totals, and those of the rule itself."""
    own: dict[str, Any] = {}
    for tally in map(tally_shown, tallies):
        for name, value in tally.items():
            if isinstance(value, int | float):
                own[name] = max(own.get(name, 0), value) if name == "peak_hour" else own.get(name, 0) + value
    whole = replay_summary(done.report)
    kept = {name: whole[name] for name in ("incidents", "same", "differs")}
    return kept | {"version": done.version, "all": done.whole, "rule": own} | ({"reason": reason} if reason else {})
