"""The calls for rules, as values; see `calls`. A rule set is written as `domain/site`, `flow/reads` or `pack/base`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import orjson

from forestay.client.api.calls import Call, Json, document


def _place(rule_set: str, *more: str) -> str:
    return "/".join(["/v1/rules", *(quote(name, safe="") for name in (*rule_set.split("/", 1), *more))])


def _post(path: str, body: Mapping[str, Any]) -> Call[Json]:
    return Call("POST", path, document, body=orjson.dumps(body))


def rule_sets() -> Call[list[Json]]:
    return Call("GET", "/v1/rules", lambda answer: list(document(answer)["rule_sets"]))


def rule_context() -> Call[list[Json]]:
    """Every field that a condition may use."""
    return Call("GET", "/v1/rules/context", lambda answer: list(document(answer)["fields"]))


def rule_set(name: str, version: int | None = None) -> Call[Json]:
    return Call("GET", _place(name), document, [("version", str(version))] if version is not None else [])


def rule(name: str, rule_id: str) -> Call[Json]:
    return Call("GET", _place(name, "rules", rule_id), lambda answer: dict(document(answer)["rule"]))


def add_rule(name: str, draft: Mapping[str, Any]) -> Call[Json]:
    """Add a rule for its reference incident: `type`, `task`, `condition`, `conclusion`, `reference_incident`, `context`, `description`, `confirmed`."""
    return _post(_place(name), draft)


def apply_rules(name: str, body: Mapping[str, Any]) -> Call[Json]:
    """Make a set have the rules of a file: `rules`, `prune`, `confirmed`, `dry_run`."""
    return Call("PUT", _place(name), document, body=orjson.dumps(body))


def set_rule_state(name: str, rule_id: str, state: str, *, confirmed: bool = False, reason: str = "") -> Call[Json]:
    """`active` or `shadow`. `confirmed`, with a reason: although the replay speaks against it."""
    more = {"confirmed": True, "reason": reason} if confirmed else {}
    return _post(_place(name, "rules", rule_id, "state"), {"state": state, **more})


def replay_rules(name: str, question: Mapping[str, Any]) -> Call[Json]:
    """What the rules would have decided on recorded incidents: `since`, `until`, `version`, `acting`, `promoted`, `rules`, `most`, `show`."""
    return _post(_place(name, "replay"), question)


def propose_rules(name: str, query: Mapping[str, Any]) -> Call[Json]:
    """Rules that follow from recorded failures: `since`, `until`, `most`."""
    return Call("GET", _place(name, "proposals"), document, [(key, str(value)) for key, value in query.items()])


def dismiss_proposal(name: str, proposal: str, *, reason: str = "") -> Call[Json]:
    """Do not propose this rule any more."""
    return _post(_place(name, "proposals", proposal, "dismiss"), {"reason": reason})


def remove_rule(name: str, rule_id: str, *, confirmed: bool = False) -> Call[Json]:
    return Call("DELETE", _place(name, "rules", rule_id), document, [("confirmed", "true")] if confirmed else [])


def rule_versions(name: str) -> Call[list[Json]]:
    return Call("GET", _place(name, "versions"), lambda answer: list(document(answer)["versions"]))


def rule_diff(name: str, old: int, new: int | None = None) -> Call[list[Json]]:
    query = [("old", str(old))] + ([("new", str(new))] if new is not None else [])
    return Call("GET", _place(name, "diff"), lambda answer: list(document(answer)["changes"]), query)


def roll_back_rules(name: str, version: int) -> Call[Json]:
    return _post(_place(name, "rollback"), {"version": version})


def ask_rules(question: Mapping[str, Any]) -> Call[Json]:
    """What the rules would say: `type`, `task`, `flow`, and a `context` or an `incident`; perhaps one `rule_set` at a `version`."""
    return _post("/v1/rules/test", question)
