"""Mutates good documents and gives them to the readers of JSDL, BPEL and XPath: each is read or refused, and soon.

``python -m tests.unit.bpel.fuzz SECONDS [SEED]``; what breaks a reader is printed with how to get it again.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.speed import cpu_limit
from tests.unit.bpel.jobs import POLLING, REGISTERED, definition, job_process
from tests.unit.bpel.processes import CASES
from tests.unit.bpel.simulated import process_text

from forestay_bpel.domain.bpel.xpath import compile_xpath
from forestay_bpel.domain.bpel.xpath_grammar import XPathRefused
from forestay_bpel.domain.bpel.xpath_values import Value, XPathFailed
from forestay_bpel.domain.jsdl.definition import JobDefinition
from forestay_bpel.domain.jsdl.job import NotRunnable, converted_job
from forestay_bpel.domain.xml_tree import as_plain, from_plain
from forestay_bpel.formats.bpel import read_bpel
from forestay_bpel.formats.jsdl import JsdlRefused, read_jsdl, write_jsdl
from forestay_bpel.formats.xml_text import XmlRefused, read_xml, write_xml

SLOW = 1.0
"""Seconds of work on one input that count as a hang."""
JSDLS = [
    definition("a", "sh", "-c", "x"),
    definition("b", "cat", more="<d:Resources><d:TotalCPUCount><d:Exact>2</d:Exact></d:TotalCPUCount></d:Resources>"),
    definition("c", "x", streams="<p:Output>o</p:Output>", more="<d:DataStaging><d:FileName>o</d:FileName><d:CreationFlag>append</d:CreationFlag><d:Target/></d:DataStaging>"),
]  # fmt: skip
BPELS = [process_text(run.body, variables=run.variables, before=run.before) for run in CASES]
BPELS += [job_process(POLLING), job_process(REGISTERED)]
XPATHS = [
    "$x + 1 = 2 and not($l) or $d/t:a[2]/@k != 'v'", "concat(count($d//t:a), ':', sum($d/t:a))", "-(-3) * 4 div 5 mod 6 - $x",
    "//t:a[position() = last()][ancestor::t:doc]/following-sibling::*[1]", "substring('abc', 1.5, 2.6)", "($d | $d/t:a)[1]",
    "translate(normalize-space(string($d)), 'ab', 'x')", "$d/t:a[. = ../t:a]", "preceding::node() | following::text()",
]  # fmt: skip
PIECES = [
    b"<!DOCTYPE a [<!ENTITY x 'y'>]>", b"&x;", b"<![CDATA[", b"]]>", b"<!--", b"-->", b"<?x ?>", b"\x00", b"\xff\xfe", b"&#0;", b"&#x10FFFF;",
    b'xmlns="urn:x"', b"xmlns:t=''", b"<a", b"</", b"/>", b"'", b'"', b" " * 50, b"1e999", b"-1", b"NaN", b"9" * 40, b"()", b"[1]", b"//", b"::",
    b"<empty/>", b"<scope>", b"</scope>", b"<flow>", b"true()", b"\xc3\xa9", b"\r\n", b"\xed\xa0\x80",
]  # fmt: skip


def mutated(random_: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A seed with some bytes changed, pieces doubled, dropped, moved or taken from another."""
    data = bytearray(random_.choice(seeds))
    for _ in range(random_.choice((1, 1, 2, 4, 16))):
        if not data:
            break
        at = random_.randrange(len(data))
        end = min(len(data), at + random_.choice((1, 2, 8, 64, 512)))
        match random_.randrange(7):
            case 0:
                data[at] = random_.randrange(256)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end] * random_.choice((1, 2, 50))
            case 3:
                data[at:at] = random_.choice(PIECES)
            case 4:
                other = random_.choice(seeds)
                begin = random_.randrange(len(other))
                data[at:end] = other[begin : begin + random_.choice((8, 64, 512))]
            case 5:
                data[at:end] = bytes(reversed(data[at:end]))
            case 6:
                data[at:end] = data[at:end].swapcase()
    return bytes(data)


def on_xml(data: bytes) -> str:
    try:
        element = read_xml(data)
    except XmlRefused:
        return "refused"
    assert read_xml(write_xml(element, indent=False)).same(element)
    assert from_plain(as_plain(element)).same(element)
    return "read"


def on_jsdl(data: bytes) -> str:
    try:
        job: JobDefinition = read_jsdl(data)
    except JsdlRefused:
        return "refused"
    assert read_jsdl(write_jsdl(job)) == job
    try:
        converted_job(job)
    except NotRunnable:
        return "not runnable"
    return "read"


def on_bpel(data: bytes) -> str:
    return read_bpel(data).report.fate.value


DOC = read_xml('<t:doc xmlns:t="urn:t"><t:a k="v">1</t:a><t:a>2<t:b/></t:a>x</t:doc>')


def _look(name: str) -> Value:
    return [DOC] if name == "d" else 3.0 if name == "x" else False


def on_xpath(data: bytes) -> str:
    try:
        compile_xpath(data.decode("utf-8", "replace"), {"t": "urn:t"}).evaluate(_look, node=DOC)
    except (XPathRefused, XPathFailed):
        return "refused"
    return "read"


TARGETS: dict[str, tuple[Callable[[bytes], str], list[bytes]]] = {
    "xml": (on_xml, [name.encode() for name in (*JSDLS, *BPELS[::5])]),
    "jsdl": (on_jsdl, [jsdl.encode() for jsdl in JSDLS]),
    "bpel": (on_bpel, [bpel.encode() for bpel in BPELS]),
    "xpath": (on_xpath, [xpath.encode() for xpath in XPATHS]),
}


def fuzz(seconds: float, seed: int) -> tuple[Counter[str], list[str]]:
    """Try for so long; how often what came out, and what broke."""
    counts: Counter[str] = Counter()
    broken: list[str] = []
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end and len(broken) < 20:
        for name, (target, seeds) in TARGETS.items():
            data = mutated(random.Random(f"{seed}:{name}:{number}"), seeds)
            began = time.thread_time()
            try:
                counts[f"{name} {target(data)}"] += 1
            except Exception as error:
                broken.append(f"{name} {seed}:{name}:{number} {type(error).__name__}: {str(error)[:300]}")
            took = time.thread_time() - began
            if took > SLOW and took > cpu_limit(SLOW):
                broken.append(f"{name} {seed}:{name}:{number} took {took:.1f} s")
        number += 1
    return counts, broken


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    counts, broken = fuzz(seconds, seed)
    sys.stdout.write(f"{seconds:.0f} s, seed {seed}: {sum(counts.values())} inputs, {len(broken)} broke a reader\n")
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"  {name}: {count}\n")
    for value in broken:
        sys.stdout.write(f"  {value}\n")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
