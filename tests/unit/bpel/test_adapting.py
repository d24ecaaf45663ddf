"""The flow adapter: standard constructs only, still good BPEL, and the same to see when nothing fails."""

from __future__ import annotations

import pytest
from tests.unit.bpel.processes import CASES, ProcessCase
from tests.unit.bpel.simulated import World, process_text, run_process

from forestay_bpel.domain.bpel.adapting import PREFIX, PROXY
from forestay_bpel.domain.bpel.xpath import BPEL
from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.formats.bpel import adapt_text, read_bpel
from forestay_bpel.formats.xml_text import read_xml
from forestay_bpel.interpreter.host import Fault, Message, PartnerCall

STANDARD = {"http://docs.oasis-open.org/wsbpel/2.0/serviceref", "http://www.w3.org/2005/08/addressing", "urn:t", BPEL}


class ByProxy(World):
    """Notes which calls come by way of the proxy; it may be away."""

    proxied: int = 0
    away = False

    async def invoke(self, call: PartnerCall) -> Message:
        if call.partner.startswith(PREFIX):
            self.proxied += 1
            if self.away:
                raise Fault(f"{{{PROXY}}}unavailable")
        return await super().invoke(call)


def text_of(run: ProcessCase) -> str:
    return process_text(run.body, variables=run.variables, before=run.before, attributes=run.attributes)


def spaces(element: XmlElement) -> set[str]:
    return {element.space}.union(*(spaces(xml_element) for xml_element in element.elements))


@pytest.mark.ledger("P0-21")
@pytest.mark.parametrize("away", [False, True], ids=["proxy", "proxy away"])
@pytest.mark.parametrize("run", CASES, ids=lambda run: run.name)
def test_an_adapted_process_does_the_same(run: ProcessCase, away: bool) -> None:
    adapted = adapt_text(text_of(run), address="http://127.0.0.1:8080/soap/jobs")
    read = read_bpel(adapted.text)
    assert read.flow is not None, [str(entry) for entry in read.report.entries if entry.fate == "refused"]
    assert spaces(read_xml(adapted.text)) <= STANDARD
    assert adapted.count == text_of(run).count("<invoke ")
    world = ByProxy(messages=list(run.messages))
    world.away = away
    ended, _, _ = run_process(adapted.text, world, run.first)
    seen, wanted = world.seen, run.seen.split()
    if away:  # asking the proxy first takes a turn, so that what begins at once may begin in another order
        seen, wanted = sorted(seen), sorted(wanted)
    assert (seen, ended.how) == (wanted, run.ended), (ended.fault, world.events)
    calls = [part for part in run.seen.split() if part[-1] not in ".!" and part[0] != "="]
    assert world.proxied == len(calls)


def test_only_the_partner_that_is_named() -> None:
    text = text_of(CASES[0])
    assert adapt_text(text, ["other"]).count == 0
    assert adapt_text(text, ["p"]).count == 3
    assert adapt_text(adapt_text(text).text, ["p"]).count == 3, (
        "what stands in for an invoke is left alone, its own call is not"
    )
