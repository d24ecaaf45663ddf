"""Made-up playbooks: any that the types allow, and those that pass their check."""

from __future__ import annotations

from hypothesis import strategies as st

from forestay.domain.playbooks.action import (
    STEERING,
    Action,
    ActionTarget,
    Amount,
    AvoidHost,
    AvoidScope,
    CompensateAction,
    FreeSpace,
    Hold,
    NeedChange,
    Notify,
    Remake,
    Repoll,
    Reregister,
    ReserveSpace,
    Restage,
    Restaging,
    Resubmission,
    Resubmit,
    RetryByPolicy,
    Rollback,
    Select,
    Steer,
    Worklet,
)
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep, WhenRefused
from forestay.domain.playbooks.playbook_check import check_playbook

_names = st.sampled_from(["venue", "seats", "x", "", "no name", "a.b"])
_values = st.one_of(
    st.integers(), st.text(max_size=8), st.sampled_from(["${params.seats}", "${nowhere.x}", "${", "a ${tasks.sell.result}"])
)  # fmt: skip
_numbers = st.sampled_from([-1, 0, 1, 60, 1 << 30, 1 << 60])
_maybe = st.none() | _numbers
worklets = st.builds(
    Worklet,
    st.sampled_from(["change-venue", "cancel-show", "", "?!"]),
    st.dictionaries(_names, _values, max_size=3),
    st.dictionaries(_names, _names, max_size=2),
)
_needs = st.builds(NeedChange, st.none() | st.sampled_from([0.5, 1.0, 1.5, 100.0]), _maybe, _maybe)
_targets = st.sampled_from(list(ActionTarget))

steering = st.builds(Steer, st.sampled_from(sorted(STEERING)), _targets)
actions: st.SearchStrategy[Action] = st.one_of(
    steering,
    steering,
    st.builds(CompensateAction, st.lists(worklets, max_size=3).map(tuple)),
    st.builds(Select, worklets),
    st.builds(Restage, st.sampled_from(list(Restaging)), _names, _maybe, _maybe, _names),
    st.builds(FreeSpace, _numbers),
    st.builds(ReserveSpace, _numbers, _numbers),
    st.builds(
        Resubmit,
        st.sampled_from(list(Resubmission)),
        st.dictionaries(st.sampled_from(list(Amount)), _needs, max_size=2),
        _numbers,
        _names,
    ),
    st.just(Remake()),
    st.just(Repoll()),
    st.just(Reregister()),
    st.builds(RetryByPolicy, _names),
    st.just(Rollback()),
    st.builds(Notify, st.text(max_size=10), st.lists(_names, max_size=2).map(tuple)),
    st.builds(AvoidHost, _numbers, st.sampled_from(list(AvoidScope))),
    st.builds(Hold, _targets, st.text(max_size=5)),
)
steps = st.builds(PlaybookStep, actions, st.none() | st.sampled_from(list(WhenRefused)))
playbooks = st.builds(
    Playbook, st.sampled_from(["recover", "", "no name"]), st.lists(steps, max_size=8).map(tuple), st.text(max_size=5)
)

_good: st.SearchStrategy[Action] = st.one_of(
    steering,
    steering,
    steering,
    st.just(CompensateAction((Worklet("one", {"seats": "${params.seats}"}, {"venue": "venue"}),))),
    st.just(CompensateAction((Worklet("one"), Worklet("two")))),
    st.just(Notify("look at this")),
    st.just(AvoidHost()),
    st.just(Rollback()),
    st.just(Hold()),
    st.just(RetryByPolicy()),
)


@st.composite
def good_playbooks(draw: st.DrawFn) -> Playbook:
    """Playbooks that pass their check: steps that would break it are left out as they are drawn."""
    chosen: tuple[PlaybookStep, ...] = ()
    refusals = st.none() | st.sampled_from(list(WhenRefused))
    for do in draw(st.lists(_good, min_size=1, max_size=12)):
        longer = (*chosen, PlaybookStep(do, draw(refusals)))
        left = {"stays suspended", "hold is the last"}
        if all(any(word in problem.message for word in left) for problem in check_playbook(Playbook("good", longer))):
            chosen = longer
    chosen = tuple(step for step in chosen if not isinstance(step.do, Hold))
    for step in chosen:
        if isinstance(step.do, Steer) and step.do.action.value == "suspend":
            longer = (*chosen, PlaybookStep(Steer(type(step.do.action)("continue"), step.do.target)))
            if not any("not suspended" in problem.message for problem in check_playbook(Playbook("good", longer))):
                chosen = longer
    made = Playbook("good", chosen or (PlaybookStep(Notify("nothing else")),))
    if check_playbook(made):
        made = Playbook("good", (*chosen, PlaybookStep(Hold())))
    return made
