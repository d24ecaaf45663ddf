"""What a client does about orders: in their order, each once, and not before it may."""

from __future__ import annotations

from typing import Any, cast

from forestay.client.api.schemas import OrderJson, ToldIncident
from forestay.client.script.command_state import CommandAnswer, CommandState, Complete, Fail, GoOn, Remove, Retry

OPEN: ToldIncident = {"state": "acting", "closed": False, "words": ""}
CLOSED: ToldIncident = {"state": "complete", "closed": True, "words": "over"}


def order(verb: str, task: str = "load", n: int = 1, **more: Any) -> OrderJson:
    known = {"n": n, "id": f"o{n}", "verb": verb, "task": task, "holder": "", "wait": 0, "needs": {}, "data": {}}
    return cast(OrderJson, known | {"reason": "", "by": "playbook"} | more)


def waiting() -> CommandState:
    return CommandState(waiting={"load"})


def test_a_closed_incident_without_an_order_lets_it_go_on() -> None:
    assert waiting().over("load", OPEN) is None
    assert waiting().over("load", CLOSED) == GoOn("over")


def test_an_order_is_obeyed_once_and_answered_always() -> None:
    obeying = waiting()
    again = order("resubmit", wait=3)
    assert obeying.take([again]) == obeying.take([again]) == [CommandAnswer("o1", "done")]
    assert obeying.over("load", OPEN) == Retry(3, {}, {})
    assert obeying.take([again]) == [CommandAnswer("o1", "done")]
    assert obeying.over("load", OPEN) is None, "the same order does not start it twice"


def test_what_is_suspended_waits_for_the_same_holder() -> None:
    obeying = waiting()
    obeying.take([order("suspend", "", 1, holder="a"), order("restart", n=2)])
    assert obeying.over("load", CLOSED) is None
    obeying.take([order("continue", "", 3, holder="b")])
    assert obeying.over("load", CLOSED) is None
    obeying.take([order("continue", "", 4, holder="a")])
    assert isinstance(obeying.over("load", CLOSED), Retry)


def test_a_task_kept_for_a_person_goes_on_by_what_the_person_says() -> None:
    obeying = waiting()
    obeying.take([order("suspend", n=1, holder="playbook")])
    assert obeying.over("load", CLOSED) is None
    obeying.take([order("force-complete", n=2, data={"result": 42})])
    assert obeying.over("load", CLOSED) == Complete(42)


def test_data_and_ends() -> None:
    obeying = waiting()
    answers = obeying.take([order("set-data", "", 1, data={"venue": "hall"}), order("force-fail", n=2, reason="no")])
    assert (obeying.data, [answer.outcome for answer in answers]) == ({"venue": "hall"}, ["done", "done"])
    assert obeying.over("load", OPEN) == Fail("no")
    obeying.take([order("remove", "", 3, reason="stop")])
    assert obeying.over("any", OPEN) == Remove("stop", whole_run=True)


def test_what_cannot_be_done_is_refused() -> None:
    obeying = waiting()
    orders = [order("restart", "other", 1), order("restart", "", 2), order("replace", n=3, data={"flow": "x"})]
    assert [answer.outcome for answer in obeying.take(orders)] == ["refused"] * 3
    assert obeying.over("load", OPEN) is None
