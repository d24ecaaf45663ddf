"""The picture of a flow: well-formed, complete, escaped, and told in words too."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from tests.unit.domain.flows.generated import flows

from forestay.domain.flows.definition.flow import Flow, all_tasks
from forestay.domain.flows.definition.flow_version import flow_as_plain
from forestay.formats.flows.flow_picture import MOST, flow_picture
from forestay.formats.flows.yaml_flow import read_flow_text

SVG = "{http://www.w3.org/2000/svg}"
EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.yaml"))


def read(text: str) -> tuple[ElementTree.Element, str]:
    root = ElementTree.fromstring(text)  # noqa: S314 - our own
    return root, " ".join(element.text or "" for element in root.iter(f"{SVG}desc"))


def flow_of(text: str) -> Flow:
    flow = read_flow_text(text).flow
    assert flow is not None
    return flow


@pytest.mark.parametrize("place", EXAMPLES, ids=lambda place: place.stem)
def test_every_task_of_an_example_is_in_its_picture(place: Path) -> None:
    flow = flow_of(place.read_text(encoding="utf-8"))
    root, text = read(flow_picture(flow_as_plain(flow)))
    for task in all_tasks(flow.tasks):
        assert task.name in text
    assert len(list(root.iter(f"{SVG}g"))) == sum(1 for _ in all_tasks(flow.tasks))


@given(flow=flows())
def test_boxes_never_overlap_and_stay_inside(flow: Flow) -> None:
    root, _ = read(flow_picture(flow_as_plain(flow)))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = []
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        boxes.append((x, y, x + w, y + h))
    for at, box in enumerate(boxes):
        for other in boxes[at + 1 :]:
            apart = box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1]
            inside = box[0] < other[0] and box[1] < other[1] and other[2] < box[2] and other[3] < box[3]
            assert apart or inside


def test_states_are_told_by_words() -> None:
    flow = flow_of("{forestay: 1, name: two, tasks: {a: {command: [x]}, b: {command: [x], after: a}}}")
    tasks: list[dict[str, object]] = [
        {"id": "a", "task": "a", "state": "completed", "count": 3, "well": 2, "bad": 1},
        {"id": "b", "task": "b", "state": "faulted", "reason": "exit code 1", "holders": ["ada"]},
    ]
    _, text = read(flow_picture(flow_as_plain(flow), tasks))
    assert text == "a (job): completed, 3 of 3, 1 failed. b (job, after a): faulted, held; exit code 1."


def test_what_people_wrote_is_escaped() -> None:
    text = flow_picture(None, [{"id": '<script>"&', "task": "x", "state": "running"}], title="</title><b>")
    assert "<script>" not in text
    assert "<b>" not in text
    read(text)


def test_a_python_flow_is_drawn_by_its_tasks() -> None:
    tasks = [
        {"id": "a", "task": "a", "state": "completed", "after": []},
        {"id": "b", "task": "b", "state": "running", "after": ["a"]},
        {"id": "c", "task": "c", "state": "running", "after": ["a"]},
    ]
    root, text = read(flow_picture(None, tasks))
    left = {}
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        left[(group.findtext(f"{SVG}title") or "")[0]] = float(rect.attrib["x"])
    assert left["a"] < left["b"] == left["c"]
    assert "b (job, after a): running." in text


def test_a_long_python_flow_shows_its_last_tasks() -> None:
    tasks = [{"id": f"step.{n}", "task": "step", "state": "completed", "after": [f"step.{n - 1}"]} for n in range(500)]
    root, text = read(flow_picture(None, tasks))
    assert len(list(root.iter(f"{SVG}g"))) == MOST
    assert text.startswith("420 earlier tasks are not shown.")
    assert "step.499" in text


def test_an_empty_run_has_a_picture() -> None:
    assert "It has no tasks." in flow_picture(None, [])
