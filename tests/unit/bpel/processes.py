"""Processes of our own over all constructs, each with what is seen of it from outside."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.unit.bpel.written import (
    alarm,
    answer,
    ask,
    catch,
    catch_all,
    do,
    each,
    flow,
    iff,
    incoming,
    job,
    let,
    linked,
    loop,
    receive,
    rest,
    scope,
    seq,
    until,
)

from forestay_bpel.interpreter.host import Incoming


@dataclass(frozen=True)
class ProcessCase:
    name: str
    body: str
    seen: str
    """Separated by blanks; see `World.seen`."""
    ended: str = "completed"
    variables: str = ""
    before: str = ""
    attributes: str = ""
    first: str = "5"
    messages: tuple[tuple[float, Incoming], ...] = field(default_factory=tuple)
    took: float | None = None


COUNT = let("$x", "$x + 1")
ZERO = let("$x", "0")
Z = '<variable name="z" type="xsd:int"/>'
SET = '<correlationSets><correlationSet name="job" properties="t:jobId"/></correlationSets>'
USE = '<correlations><correlation set="job" initiate="no"/></correlations>'
BEGIN = '<correlations><correlation set="job" initiate="yes" pattern="response"/></correlations>'
SUBMIT = f'<invoke name="a" partnerLink="p" operation="echo" inputVariable="in" outputVariable="out">{BEGIN}</invoke>'
DOC = '<assign><copy><from><literal><t:doc><t:a k="v">1</t:a><t:a>2</t:a><t:b/></t:doc></literal></from><to variable="d"/></copy></assign>'
PARTS = '<invoke partnerLink="p" operation="echo"><toParts><toPart part="q" fromVariable="x"/></toParts><fromParts><fromPart part="q" toVariable="y"/></fromParts></invoke>'
PICK = (
    f'<pick><onMessage partnerLink="p" operation="m" variable="in">{do("a")}</onMessage>{alarm(9, do("late"))}</pick>'
)
EVENT = f'<onEvent partnerLink="p" operation="e" variable="v" messageType="t:m">{scope(ask("echo", "v"))}</onEvent>'
UNDO = catch_all("<compensate/>")
ONLY_GOOD = '<branches successfulBranchesOnly="yes">3</branches>'
ISOLATED = 'isolated="yes"'


def tell(value: str) -> str:
    return let("$out.part", value) + answer()


def a_copy(from_: str, to: str, more: str = "") -> str:
    return f"<assign><copy {more}><from>{from_}</from><to>{to}</to></copy></assign>"


CASES = [
    # Sequence and answers
    ProcessCase("sequence", do("a") + do("b") + do("c"), "a b c"),
    ProcessCase("answer", tell("$in.part"), "=5"),
    ProcessCase("ask and answer", ask("echo", "in") + answer(), "echo(5) =5"),
    ProcessCase("answer with a fault", answer("in", "t:no"), "=no!5"),
    ProcessCase("empty does nothing", "<empty/>" + do("a"), "a"),
    ProcessCase("parts instead of variables", let("$x", "4") + PARTS + tell("$y + 1"), "echo(4) =5"),
    # Choice
    ProcessCase("if", iff("$in.part = 5", do("yes"), f"<else>{do('no')}</else>"), "yes"),
    ProcessCase("else", iff("$in.part &gt; 5", do("yes"), f"<else>{do('no')}</else>"), "no"),
    ProcessCase("elseif", iff("false()", do("a"), f"<elseif><condition>$in.part = 5</condition>{do('b')}</elseif><else>{do('c')}</else>"), "b"),
    ProcessCase("no branch", iff("false()", do("a")) + do("b"), "b"),
    ProcessCase("several branches are chosen", flow("", iff("$in.part &gt; 1", do("slow1")), iff("$in.part &gt; 4", do("slow2")), iff("$in.part &gt; 9", do("c"))), "slow1 slow2 slow1. slow2.", took=2),
    # Loops
    ProcessCase("while", ZERO + loop("$x &lt; 3", seq(do("a"), COUNT)), "a a a"),
    ProcessCase("while never", loop("false()", do("a")) + do("b"), "b"),
    ProcessCase("repeatUntil once", until(do("a"), "true()"), "a"),
    ProcessCase("repeatUntil", ZERO + until(seq(do("a"), COUNT), "$x = 2"), "a a"),
    ProcessCase("forEach", each(scope(ask("echo", "i", "y"))), "echo(1) echo(2) echo(3)"),
    ProcessCase("forEach over nothing", each(scope(do("a")), "3", "1") + do("b"), "b"),
    ProcessCase("forEach side by side", each(scope(do("slow3")), parallel="yes"), "slow3 slow3 slow3 slow3. slow3. slow3.", took=3),
    ProcessCase("forEach until enough", each(scope(do("a")), done="<branches>2</branches>"), "a a"),
    ProcessCase("forEach side by side until enough", each(scope(iff("$i = 1", do("slow1"), f"<else>{do('slow9')}</else>")), parallel="yes", done="<branches>1</branches>"), "slow1 slow9 slow9 slow1. slow9! slow9!", took=1),
    ProcessCase("forEach of which too many are bad", scope(each(scope(do("bad"), catch=catch_all("<empty/>")), done=ONLY_GOOD), catch=catch("bpel:completionConditionFailure", do("c"))), "bad c"),
    ProcessCase("forEach wants more than there are", scope(each(scope(do("a")), done="<branches>4</branches>"), catch=catch("bpel:invalidBranchCondition", do("c"))), "c"),
    ProcessCase("forEach without a number", scope(each(scope(do("a")), "'x'"), catch=catch("bpel:invalidExpressionValue", do("c"))), "c"),
    # Side by side, with links
    ProcessCase("flow", flow("", do("slow2"), do("slow1")) + do("c"), "slow2 slow1 slow1. slow2. c", took=2),
    ProcessCase("link orders", flow("l", linked("b", into="l"), linked("slow1", out="l")), "slow1 slow1. b"),
    ProcessCase("diamond", flow("l m n o", linked("a", out="l;m"), linked("slow2", into="l", out="n"), linked("slow1", into="m", out="o"), linked("d", into="n o")), "a slow2 slow1 slow1. slow2. d", took=2),
    ProcessCase("join fails", flow("l", linked("a", out="l:false()"), linked("b", into="l")), "a", ended="faulted"),
    ProcessCase("join fails and is passed over", flow("l", linked("a", out="l:false()"), linked("b", into="l", suppress="yes"), do("slow1")), "a slow1 slow1."),
    ProcessCase("a dead path is told on", flow("l m", linked("a", out="l:false()"), linked("b", into="l", out="m"), linked("c", into="m")) + do("d"), "a d", attributes='suppressJoinFailure="yes"'),
    ProcessCase("one of two links is enough", flow("l m", linked("a", out="l:false()"), linked("b", out="m"), linked("c", into="l m")), "a b c"),
    ProcessCase("join condition", flow("l m", linked("a", out="l"), linked("b", out="m:false()"), linked("c", into="l m", join="$l and $m", suppress="yes"), do("d")), "a b d"),
    ProcessCase("join condition that holds", flow("l m", linked("a", out="l"), linked("b", out="m:false()"), linked("c", into="l m", join="$l and not($m)")), "a b c"),
    ProcessCase("link out of a branch that is not taken", flow("l", iff("false()", linked("a", out="l")), linked("b", into="l", suppress="yes"), do("c")), "c"),
    ProcessCase("link out of a scope", flow("l", scope(seq(linked("a", out="l"), do("slow2"))), linked("slow1", into="l")), "a slow2 slow1 slow1. slow2."),
    ProcessCase("link out of a scope that fails", flow("l", scope(seq(do("bad"), linked("a", out="l")), catch=catch_all(do("c"))), linked("b", into="l", suppress="yes")), "bad c"),
    ProcessCase("transition condition on data", let("$x", "7") + flow("l m", linked("a", out="l:$x = 7;m:$x = 8"), linked("b", into="l"), linked("c", into="m", suppress="yes")), "a b"),
    # Messages and time
    ProcessCase("wait", rest(90) + do("a"), "a", took=90),
    ProcessCase("wait until", "<wait><until>'2001-09-09T01:46:45Z'</until></wait>" + do("a"), "a", took=5),
    ProcessCase("wait for what was", "<wait><until>'1999-01-01T00:00:00Z'</until></wait>" + do("a"), "a", took=0),
    ProcessCase("receive later", receive("more") + ask("echo", "in"), "echo(m)", messages=((3, incoming("more", "m")),), took=3),
    ProcessCase("a message that was early", rest(9) + receive("more") + ask("echo", "in"), "echo(m)", messages=((3, incoming("more", "m")),), took=9),
    ProcessCase("pick a message", PICK, "a", messages=((3, incoming("m", "x")),), took=3),
    ProcessCase("pick an alarm", PICK, "late", messages=((30, incoming("m", "x")),), took=9),
    ProcessCase("correlation", scope(seq(SUBMIT, receive("done", USE), ask("echo", "in")), more=SET), "echo(7) echo(7yes)", first="<t:m xmlns:t='urn:t'><t:jobId>7</t:jobId></t:m>",
         messages=((1, incoming("done", job(8, "no"))), (2, incoming("done", job(7, "yes")))), took=2),
    ProcessCase("correlation without a value", scope(scope(receive("done", USE), more=SET), catch=catch("bpel:correlationViolation", do("c"))), "c"),
    ProcessCase("two wait for the same", scope(flow("", receive("m"), receive("m")), catch=catch("bpel:conflictingReceive", do("c"))), "c"),
    ProcessCase("answer nobody asked for", scope('<reply partnerLink="me" operation="other" variable="in"/>', catch=catch("bpel:missingRequest", do("c"))), "c"),
    # Faults
    ProcessCase("catch by name", scope('<throw faultName="t:a"/>', catch=catch("t:b", do("b")) + catch("t:a", do("a")) + catch_all(do("c"))) + do("d"), "a d"),
    ProcessCase("catch all", scope('<throw faultName="t:a"/>', catch=catch("t:b", do("b")) + catch_all(do("c"))) + do("d"), "c d"),
    ProcessCase("catch with what it carries", scope(do("bad"), catch=catch("t:bad", seq(let("$out.part", "$f"), answer()), 'faultVariable="f" faultElement="t:why"')), "bad =bad"),
    ProcessCase("catch by what it carries", scope(do("bad"), catch=f'<catch faultVariable="f" faultElement="t:other">{do("b")}</catch><catch faultVariable="f" faultElement="t:why">{do("a")}</catch>'), "bad a"),
    ProcessCase("an invoke with handlers of its own", do("bad", catch("t:bad", do("a"))) + do("b"), "bad a b"),
    ProcessCase("throw what a variable has", DOC + scope('<throw faultName="t:a" faultVariable="d"/>', catch=catch("t:a", seq(let("$out.part", "$f/t:a[2]"), answer()), 'faultVariable="f" faultElement="t:doc"')), "=2"),
    ProcessCase("rethrow", scope(scope(do("bad"), catch=catch_all(seq(do("a"), "<rethrow/>"))), catch=catch("t:bad", do("b"))), "bad a b"),
    ProcessCase("a fault in a handler goes up", scope(scope(do("bad"), catch=catch_all(do("bad2"))), catch=catch("t:bad2", do("b"))), "bad bad2 b"),
    ProcessCase("nobody catches", do("bad") + do("a"), "bad", ended="faulted"),
    ProcessCase("the process catches", do("bad") + do("a"), "bad c", before=f"<faultHandlers>{catch_all(do('c'))}</faultHandlers>"),
    ProcessCase("a fault ends what runs beside", scope(flow("", do("slow9"), seq(do("slow1"), do("bad"))), catch=catch_all(do("c"))), "slow9 slow1 slow1. bad slow9! c", took=1),
    ProcessCase("a variable without a value", scope(ask("echo", "y"), catch=catch("bpel:uninitializedVariable", do("c"))), "c"),
    ProcessCase("exit", do("a") + flow("", do("slow9"), seq(do("slow1"), "<exit/>")) + do("b"), "a slow9 slow1 slow1. slow9!", ended="exited", took=1),
    ProcessCase("exit runs no handlers", scope(flow("", scope(do("slow9"), ended=do("t")), seq(scope(do("a"), undo=do("u")), "<exit/>")), catch=catch_all(do("c"))), "slow9 a slow9!", ended="exited"),
    ProcessCase("a standard fault exits", scope(ask("echo", "y"), catch=catch_all(do("c")), attributes='exitOnStandardFault="yes"') + do("b"), "", ended="exited"),
    # Compensation and termination
    ProcessCase("compensate in reverse", scope(seq(scope(do("a"), undo=do("ua")), scope(do("b"), undo=do("ub")), do("bad")), catch=UNDO), "a b bad ub ua"),
    ProcessCase("nobody catches, all is undone", scope(do("a"), undo=do("ua")) + scope(do("b"), undo=do("ub")) + do("bad"), "a b bad ub ua", ended="faulted"),
    ProcessCase("compensate one scope", scope(seq(scope(do("a"), name="A", undo=do("ua")), scope(do("b"), name="B", undo=do("ub")), do("bad")), catch=catch_all('<compensateScope target="A"/>')), "a b bad ua"),
    ProcessCase("what did not complete is not undone", scope(seq(scope(do("a"), undo=do("ua")), scope(do("bad"), undo=do("ub"))), catch=UNDO), "a bad ua"),
    ProcessCase("what was handled is not undone", scope(seq(scope(do("bad"), catch=catch_all(do("c")), undo=do("u")), do("bad2")), catch=UNDO), "bad c bad2"),
    ProcessCase("scopes inside scopes are undone", scope(seq(scope(seq(scope(do("a"), undo=do("ua")), scope(do("b"), undo=do("ub")))), do("bad")), catch=UNDO), "a b bad ub ua"),
    ProcessCase("a handler decides for those inside", scope(seq(scope(seq(scope(do("a"), undo=do("ua")), do("b")), undo=seq(do("u"), "<compensate/>")), do("bad")), catch=UNDO), "a b bad u ua"),
    ProcessCase("every round is undone", scope(seq(each(scope(ask("echo", "i", "y"), undo=ask("undo", "i", "y"))), do("bad")), catch=UNDO), "echo(1) echo(2) echo(3) bad undo(3) undo(2) undo(1)"),
    ProcessCase("undone with the values of then", scope(seq(scope(seq(let("$x", "1"), let("$z", "$x")), undo=ask("undo", "z", "y"), more=f"<variables>{Z}</variables>"), let("$x", "2"), do("bad")), catch=UNDO), "bad undo(1)"),
    ProcessCase("an invoke that can be undone", scope(seq(do("a", f"<compensationHandler>{do('ua')}</compensationHandler>"), do("bad")), catch=UNDO), "a bad ua"),
    ProcessCase("a scope is terminated", scope(flow("", scope(do("slow9"), name="S", ended=do("t")), seq(do("slow1"), do("bad"))), catch=catch_all(do("c"))), "slow9 slow1 slow1. bad slow9! t c"),
    ProcessCase("terminated, what it did is undone", scope(flow("", scope(seq(scope(do("a"), undo=do("ua")), do("slow9"))), seq(do("slow1"), do("bad"))), catch=catch_all(do("c"))), "a slow9 slow1 slow1. bad slow9! ua c"),
    ProcessCase("a fault while terminating goes nowhere", scope(flow("", scope(do("slow9"), ended=do("bad2")), seq(do("slow1"), do("bad"))), catch=catch("t:bad", do("c"))), "slow9 slow1 slow1. bad slow9! bad2 c"),
    ProcessCase("a handler that runs is let run", scope(flow("", scope(do("bad"), catch=catch_all(do("slow5"))), seq(do("slow1"), do("bad2"))), catch=catch_all(do("c"))), "bad slow1 slow5 slow1. bad2 slow5. c", took=5),
    # Events
    ProcessCase("an event is answered beside", scope(do("slow9"), events=EVENT), "slow9 echo(m) echo(n) slow9.", messages=((3, incoming("e", "m")), (4, incoming("e", "n"))), took=9),
    ProcessCase("an alarm", scope(do("slow9"), events=alarm(3, scope(do("a")))), "slow9 a slow9.", took=9),
    ProcessCase("an alarm again and again", scope(do("slow10"), events=f"<onAlarm><repeatEvery>'PT3S'</repeatEvery>{scope(do('a'))}</onAlarm>"), "slow10 a a a slow10.", took=10),
    ProcessCase("an alarm that comes too late", scope(do("slow1"), events=alarm(3, scope(do("a")))) + do("b"), "slow1 slow1. b", took=1),
    ProcessCase("an event is let end", scope(do("slow4"), events=alarm(3, scope(do("slow5")))) + do("b"), "slow4 slow5 slow4. slow5. b", took=8),
    ProcessCase("a fault in an event ends the scope", scope(do("slow9"), events=alarm(3, scope(do("bad"))), catch=catch_all(do("c"))), "slow9 bad slow9! c", took=3),
    ProcessCase("isolated scopes come one after the other", ZERO + flow("", scope(seq(do("slow2"), COUNT), attributes=ISOLATED), scope(seq(do("slow1"), COUNT), attributes=ISOLATED)) + tell("$x"), "slow2 slow2. slow1 slow1. =2", took=3),
    # Data
    ProcessCase("count", ZERO + COUNT + COUNT + tell("$x"), "=2"),
    ProcessCase("xpath over a document", DOC + tell("concat(count($d/t:a), ':', sum($d/t:a), ':', $d/t:a[1]/@k)"), "=2:3:v"),
    ProcessCase("copy into an element", DOC + a_copy("'z'", "$d/t:a[2]") + tell("string($d)"), "=1z"),
    ProcessCase("copy into an attribute", DOC + a_copy("'z'", "$d/t:a/@k") + tell("$d/t:a[@k='z']"), "=1"),
    ProcessCase("copy an element into another", DOC + a_copy("$d/t:a[1]", "$d/t:b") + tell("concat($d/t:b, $d/t:b/@k)"), "=1v"),
    ProcessCase("keep the name of what is copied", DOC + a_copy("$d/t:a[1]", "$d/t:b", 'keepSrcElementName="yes"') + tell("count($d/t:a)"), "=3"),
    ProcessCase("query", DOC + '<assign><copy><from variable="d"><query>t:a[2]</query></from><to variable="x"/></copy></assign>' + tell("$x"), "=2"),
    ProcessCase("nothing selected", scope(seq(DOC, let("$x", "$d/t:none")), catch=catch("bpel:selectionFailure", do("c"))), "c"),
    ProcessCase("nothing selected, and that is well", DOC + ZERO + a_copy("$d/t:none", "$x", 'ignoreMissingFromData="yes"') + tell("$x"), "=0"),
    ProcessCase("all copies or none", ZERO + scope("<assign><copy><from>9</from><to>$x</to></copy><copy><from>$z</from><to>$y</to></copy></assign>", catch=catch_all("<empty/>")) + tell("$x"), "=0", variables=Z),
    ProcessCase("a variable begins with a value", tell("$z * 2"), "=8", variables='<variable name="z" type="xsd:int"><from>4</from></variable>'),
    ProcessCase("a variable hides another", ZERO + scope(let("$x", "9"), more='<variables><variable name="x" type="xsd:int"/></variables>') + tell("$x"), "=0"),
    ProcessCase("whole messages", '<assign><copy><from variable="in"/><to variable="out"/></copy></assign>' + answer(), "=5"),
    ProcessCase("a property", DOC + a_copy("6", "$d/t:b") + '<assign><copy><from variable="d" property="t:b"/><to variable="x"/></copy></assign>' + tell("$x"), "=6"),
    ProcessCase("validate", '<validate variables="in"/>' + scope('<validate variables="y"/>', catch=catch_all(do("c"))), "c"),
    ProcessCase("an unknown function", scope(let("$x", "t:no()"), catch=catch("bpel:subLanguageExecutionFault", do("c"))), "c"),
]  # fmt: skip
