"""Logical names become places by rules; replicas are ordered by what they cost, and what failed comes last."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.speed import cpu_limit

from forestay.domain.data.replica import (
    BAD_FOR,
    LogicalFile,
    Replica,
    Viewpoint,
    file_as_plain,
    file_from_plain,
    where,
)
from forestay.domain.data.storage_element import AccessProtocol, Door, NameRule, StorageElement, check_elements
from forestay.domain.jobs.inputs import JobInput, catalogue_name, logical_name, wrong_input
from forestay.domain.jobs.outbound import OutboundPolicy

RULES = (
    NameRule(r"/store/data/([^/]+)/(.*)", "disk/$1/$2"),
    NameRule(r"/store/(.*)", "tape/$1"),
)
T0 = StorageElement("t0", (Door(AccessProtocol.ROOT, "root://t0//eos"),), RULES, sites=frozenset({"CERN"}))
T1 = StorageElement(
    "t1",
    (Door(AccessProtocol.HTTP, "https://t1/dav"), Door(AccessProtocol.ROOT, "root://t1//")),
    (NameRule(r"/store/(.*)", "$1"),),
    sites=frozenset({"FNAL"}),
    outputs="out",
)
ELEMENTS = {element.name: element for element in (T0, T1)}


@pytest.mark.ledger("P3-06")
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/store/data/run1/a.root", "disk/run1/a.root"),  # the first rule that fits
        ("/store/mc/a.root", "tape/mc/a.root"),
        ("/elsewhere/a.root", None),
        ("/store/data/run1/../../secret", None),
    ],
)
def test_the_first_rule_that_fits_gives_the_place(name: str, path: str | None) -> None:
    assert T0.path_of(name) == path


def test_a_rule_must_fit_the_whole_name() -> None:
    assert T1.path_of("/before/store/a") is None


@pytest.mark.ledger("P3-06")
def test_the_pilots_own_element_comes_first_then_its_sites_then_the_others() -> None:
    places = {
        ("CERN", ""): ["t0", "t1"],
        ("FNAL", ""): ["t1", "t0"],
        ("CERN", "t1"): ["t1", "t0"],
        ("nowhere", ""): ["t0", "t1"],
    }
    for (site, element), order in places.items():
        file = where("lfn:/store/mc/a", None, ELEMENTS, Viewpoint("t", site, element), now=0)
        assert [replica.element for replica in file.replicas] == order, (site, element)


def test_what_failed_comes_last_for_an_hour() -> None:
    known = LogicalFile("lfn:/store/mc/a").marked("t0", "tape/mc/a", bad=1_000, why="HTTP 500")
    near = Viewpoint("t", "CERN")
    for now, order in ((2_000, ["t1", "t0"]), (1_000 + BAD_FOR, ["t0", "t1"])):
        file = where(known.name, known, ELEMENTS, near, now)
        assert [replica.element for replica in file.replicas] == order
    recovered = known.marked("t0", "tape/mc/a", bad=None)
    assert where(known.name, recovered, ELEMENTS, near, 2_000).replicas[0].element == "t0"


def test_a_replica_that_was_added_stands_beside_what_the_rules_say() -> None:
    known = LogicalFile("lfn:/other/a", 5, "ab" * 32).with_replica(Replica("t1", "copies/a", since=1))
    file = where(known.name, known, ELEMENTS, Viewpoint("t"), now=0)
    assert [replica.place for replica in file.replicas] == [("t1", "copies/a")]
    assert file_from_plain(file_as_plain(known)) == known


def test_the_outputs_of_another_tenant_are_nobody_elses_files() -> None:
    assert T1.may_read("ada", "out/ada/j-1/f")
    assert not T1.may_read("ada", "out/bob/j-1/f")
    sly = where("lfn:/store/out/bob/j-1/f", None, ELEMENTS, Viewpoint("ada"), now=0)
    assert [replica.element for replica in sly.replicas] == ["t0"], "there it is no folder of outputs"


def test_an_element_is_for_the_tenants_that_it_names() -> None:
    own = StorageElement("own", T1.doors, T1.rules, tenants=frozenset({"ada"}))
    assert where("lfn:/store/a", None, {"own": own}, Viewpoint("ada"), 0).replicas
    assert not where("lfn:/store/a", None, {"own": own}, Viewpoint("bob"), 0).replicas


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (NameRule(r"/(a)\1", "x"), "no backreferences"),
        (NameRule(r"/(?!a).*", "x"), "no lookaround"),
        (NameRule(r"(", "x"), "not a valid regular expression"),
        (NameRule(r"/store/(.*)", "$2"), "group"),
        (NameRule("a" * 601, "x"), "600 characters"),
    ],
)
def test_rules_that_re2_does_not_know_or_that_mean_nothing_are_refused(rule: NameRule, why: str) -> None:
    (problem,) = check_elements((StorageElement("e", T0.doors, (rule,)),))
    assert why in problem


def test_an_element_has_one_name() -> None:
    assert any("several storage elements" in element for element in check_elements((T0, T0)))


@pytest.mark.long
@given(st.text(alphabet="a/.b-", min_size=1, max_size=400))
def test_no_name_takes_long_or_leads_outside(name: str) -> None:
    element = StorageElement("e", T0.doors, (NameRule(r"/?((?:[^/]+)*)/(.*)(.*)-(.*)", "$1/$2/$3$4"),))
    began = time.process_time()
    path = element.path_of(name)
    assert time.process_time() - began < cpu_limit(1.0)
    assert path is None or (".." not in path.split("/") and not path.startswith("/"))


@pytest.mark.parametrize("source", ["lfn:", "lfn:/a/../b", "lfn:a b", "lfn:/a\n", "lfn://a", "lfn:" + "a" * 600])
def test_a_name_that_is_none_is_refused(source: str) -> None:
    assert wrong_input(JobInput("a", source), OutboundPolicy((), setting="s"))


def test_a_name_of_the_catalogue_is_a_source() -> None:
    wanted = JobInput("a", "lfn:/store/a.root")
    assert wrong_input(wanted, OutboundPolicy((), setting="s")) is None
    assert catalogue_name(wanted.source) == "/store/a.root"
    assert logical_name(wanted) == "lfn:/store/a.root"
