"""Processes whose partner is a job service."""

from __future__ import annotations

BPEL = "http://docs.oasis-open.org/wsbpel/2.0/process/executable"


def definition(name: str, command: str, *arguments: str, more: str = "", streams: str = "") -> str:
    """A job definition in JSDL."""
    words = "".join(f"<p:Argument>{argument}</p:Argument>" for argument in arguments)
    return (
        '<d:JobDefinition xmlns:d="http://schemas.ggf.org/jsdl/2005/11/jsdl" xmlns:p="http://schemas.ggf.org/jsdl/2005/11/jsdl-posix">'
        f"<d:JobDescription><d:JobIdentification><d:JobName>{name}</d:JobName></d:JobIdentification>"
        f"<d:Application><p:POSIXApplication><p:Executable>{command}</p:Executable>{words}{streams}</p:POSIXApplication></d:Application>"
        f"{more}</d:JobDescription></d:JobDefinition>"
    )


JOBS = {"first.jsdl": definition("first", "true"), "second.jsdl": definition("second", "true")}


def job_process(body: str, state: str = "$got.body/j:state", name: str = "jobs") -> str:
    """A process that does something with jobs and answers with how the last one stands."""
    return f"""<process name="{name}" targetNamespace="urn:t" xmlns="{BPEL}" xmlns:t="urn:t" xmlns:j="urn:forestay:jobs">
<partnerLinks><partnerLink name="me" partnerLinkType="t:L" myRole="r"/>
<partnerLink name="jobs" partnerLinkType="t:J" partnerRole="service" myRole="listener"/></partnerLinks>
<variables><variable name="in" messageType="t:m"/><variable name="out" messageType="t:m"/><variable name="ask" messageType="t:m"/>
<variable name="ask2" messageType="t:m"/><variable name="got" messageType="t:m"/></variables>
<correlationSets><correlationSet name="job" properties="j:jobId"/></correlationSets>
<sequence><receive partnerLink="me" operation="start" variable="in" createInstance="yes"/><assign><copy><from>''</from><to>$ask.body</to></copy></assign>
{body}
<assign><copy><from>string({state})</from><to>$out.body</to></copy></assign><reply partnerLink="me" operation="start" variable="out"/></sequence></process>"""


SUBMITTED = """<assign><copy><from>'first'</from><to>$ask.body</to></copy></assign>
<invoke name="a" partnerLink="jobs" operation="submit" inputVariable="ask" outputVariable="got">
<correlations><correlation set="job" initiate="yes" pattern="response"/></correlations></invoke>
<assign><copy><from>string($got.body/j:jobId)</from><to>$ask.body</to></copy></assign>"""
POLLING = f"""{SUBMITTED}<repeatUntil><sequence><wait><for>'PT0.2S'</for></wait>
<invoke partnerLink="jobs" operation="getStatus" inputVariable="ask" outputVariable="got"/></sequence>
<condition>$got.body/j:state = 'completed' or $got.body/j:state = 'failed'</condition></repeatUntil>"""
REGISTERED = f"""{SUBMITTED}<invoke partnerLink="jobs" operation="register" inputVariable="ask" outputVariable="got"/>
<receive partnerLink="jobs" operation="notify" variable="got"><correlations><correlation set="job" initiate="no"/></correlations></receive>"""
