"""Short ways to write the constructs of a process."""

from __future__ import annotations

from tests.unit.bpel.simulated import part

from forestay_bpel.interpreter.host import Incoming


def do(name: str, more: str = "") -> str:
    return f'<invoke name="{name}" partnerLink="p" operation="{name}">{more}</invoke>'


def ask(name: str, text: str = "", into: str = "out") -> str:
    inside = f' inputVariable="{text}"' if text else ""
    return f'<invoke name="{name}" partnerLink="p" operation="{name}"{inside} outputVariable="{into}"/>'


def answer(variable: str = "out", fault: str = "") -> str:
    name = f' faultName="{fault}"' if fault else ""
    return f'<reply partnerLink="me" operation="start" variable="{variable}"{name}/>'


def seq(*inner: str) -> str:
    return f"<sequence>{''.join(inner)}</sequence>"


def let(to: str, value: str) -> str:
    return f"<assign><copy><from>{value}</from><to>{to}</to></copy></assign>"


def scope(inner: str, *, name: str = "", catch: str = "", undo: str = "", ended: str = "", events: str = "", more: str = "", attributes: str = "") -> str:  # fmt: skip
    named = f' name="{name}"' if name else ""
    parts = f"<faultHandlers>{catch}</faultHandlers>" if catch else ""
    parts += f"<compensationHandler>{undo}</compensationHandler>" if undo else ""
    parts += f"<terminationHandler>{ended}</terminationHandler>" if ended else ""
    parts += f"<eventHandlers>{events}</eventHandlers>" if events else ""
    return f"<scope{named} {attributes}>{more}{parts}{inner}</scope>"


def linked(name: str, *, out: str = "", into: str = "", join: str = "", suppress: str = "") -> str:
    """An invoke with links: ``out`` and ``into`` are names, ``a:condition`` for one with a condition."""
    leaving = ""
    for other_part in out.split(";") if out else ():
        link, _, condition = other_part.partition(":")
        inner = f"<transitionCondition>{condition}</transitionCondition>" if condition else ""
        leaving += f'<source linkName="{link}">{inner}</source>'
    arriving = "".join(f'<target linkName="{other_part}"/>' for other_part in into.split())
    when = f"<joinCondition>{join}</joinCondition>" if join else ""
    more = (f"<targets>{when}{arriving}</targets>" if into else "") + (f"<sources>{leaving}</sources>" if out else "")
    flag = f' suppressJoinFailure="{suppress}"' if suppress else ""
    return f'<invoke name="{name}" partnerLink="p" operation="{name}"{flag}>{more}</invoke>'


def flow(links: str, *inner: str) -> str:
    declared = "".join(f'<link name="{other_part}"/>' for other_part in links.split())
    return f"<flow>{f'<links>{declared}</links>' if links else ''}{''.join(inner)}</flow>"


def catch_all(inner: str) -> str:
    return f"<catchAll>{inner}</catchAll>"


def catch(name: str, inner: str, more: str = "") -> str:
    return f'<catch faultName="{name}" {more}>{inner}</catch>'


def each(inner: str, first: str = "1", last: str = "3", parallel: str = "no", done: str = "") -> str:
    end = f"<completionCondition>{done}</completionCondition>" if done else ""
    return (
        f'<forEach counterName="i" parallel="{parallel}"><startCounterValue>{first}</startCounterValue>'
        f"<finalCounterValue>{last}</finalCounterValue>{end}{inner}</forEach>"
    )


def iff(condition: str, inner: str, more: str = "") -> str:
    return f"<if><condition>{condition}</condition>{inner}{more}</if>"


def loop(condition: str, inner: str) -> str:
    return f"<while><condition>{condition}</condition>{inner}</while>"


def until(inner: str, condition: str) -> str:
    return f"<repeatUntil>{inner}<condition>{condition}</condition></repeatUntil>"


def rest(seconds: int) -> str:
    return f"<wait><for>'PT{seconds}S'</for></wait>"


def receive(operation: str, more: str = "") -> str:
    return f'<receive partnerLink="p" operation="{operation}" variable="in">{more}</receive>'


def alarm(seconds: int, inner: str) -> str:
    return f"<onAlarm><for>'PT{seconds}S'</for>{inner}</onAlarm>"


def job(number: int, state: str) -> str:
    return f"<t:m xmlns:t='urn:t'><t:jobId>{number}</t:jobId><t:s>{state}</t:s></t:m>"


def incoming(operation: str, text: str, partner: str = "p") -> Incoming:
    return Incoming(partner, operation, part(text))
