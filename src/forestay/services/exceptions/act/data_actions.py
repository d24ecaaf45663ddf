"""Playbook actions on a job's files that need more than a write to its document: use another replica or another target, or free space at the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from forestay.domain.data.replica import LogicalFile, Viewpoint
from forestay.domain.data.staging_terms import FREE
from forestay.domain.data.storage_element import StorageElement
from forestay.domain.jobs.claim import AVOIDED, at_site
from forestay.domain.jobs.inputs import JobInput, catalogue_name, filled, logical_name, produced
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.pilots.pilot import Pilot, PilotState
from forestay.domain.playbooks.action import AvoidHost, AvoidScope, FreeSpace, Restage, Restaging
from forestay.ports.clock import Clock
from forestay.ports.data.catalogue import Catalogue
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.data.remade_outputs import from_newest, newest_commits
from forestay.services.data.replica_health import ReplicaHealth
from forestay.services.data.storage_cleaner import StorageCleaner
from forestay.services.exceptions.act.job_actions import MAX_AVOIDED, SITE, ActionOutcome, JobActions, job_of
from forestay.services.exceptions.record.decision_log import StepRequest

AVOID_FOR = 3_600_000
"""Milliseconds for which a job avoids a target that it was moved from."""


@dataclass(slots=True)
class DataActions:
    """The service; a performer of playbooks."""

    jobs: JobActions
    store: JobStore
    pilots: PilotStore
    catalogue: Catalogue
    replicas: ReplicaHealth
    elements: StorageCleaner
    clock: Clock

    async def __call__(self, ask: StepRequest) -> ActionOutcome:
        document = await job_of(self.store, ask.incident)
        if isinstance(document, ActionOutcome):
            return document
        match ask.do:
            case Restage(how=Restaging.OTHER_REPLICA):
                return await self._other_replica(ask, document)
            case Restage(how=Restaging.OTHER_TARGET, place=place):
                return await self._other_target(ask, document, place)
            case FreeSpace(size):
                return await self._free(ask, document, size)
            case AvoidHost(scope=AvoidScope.SITE):
                pilot = await self._pilot(document)
                if pilot is None:
                    return ActionOutcome(done=False, detail="the site of the last attempt is unknown")
                return await self.jobs.recover(ask.incident, ask.do, step=ask.id, notes={SITE: pilot.site})
            case _:
                return await self.jobs.recover(ask.incident, ask.do, step=ask.id, release_of=ask.release)

    # -- another replica ---------------------------------------------------------------------------------------

    async def failed_input(self, document: JobDocument) -> JobInput | None:
        """The input that made a job's last attempt fail, with its present source; None: no input did."""
        last = document.last
        if last is None or not last.file or last.stage not in (None, "staging-in"):
            return None
        specs = await self.store.get_specifications([document.specification])
        given_inputs = specs[document.specification].inputs if document.specification in specs else ()
        inputs = [filled(job_input, document.parameters, document.index) for job_input in given_inputs]
        wanted = next((job_input for job_input in inputs if job_input.name == last.file), None)
        output = produced(wanted.source) if wanted is not None else None
        if wanted is None or output is None:
            return wanted
        return from_newest(wanted, await newest_commits(self.store, await self.store.get([output.job])))

    async def other_replica(self, document: JobDocument, wanted: JobInput) -> LogicalFile | None:
        """The catalogue's entry of an input that has another good replica; None: there is none."""
        name = logical_name(wanted)
        if name is None:
            return None
        file = (await self.catalogue.locate([name], Viewpoint(document.tenant)))[name]
        now = self.clock.now()
        good = [replica for replica in file.replicas if not replica.bad(now)]
        # An input named by a URL, or made by a job, has a source of its own beside the replicas, and that failed. Otherwise one of these did, reported or not.
        spared = 1 if catalogue_name(name) is None or _told(document, file) else 2
        return file if len(good) >= spared else None

    async def _other_replica(self, ask: StepRequest, document: JobDocument) -> ActionOutcome:
        wanted = await self.failed_input(document)
        if wanted is None:
            return ActionOutcome(done=False, detail="the job did not fail for one of its inputs")
        file = await self.other_replica(document, wanted)
        if file is None:
            return ActionOutcome(done=False, detail=f"no other replica of {wanted.source} is known")
        if catalogue_name(file.name) is not None and not _told(document, file):
            # The pilot did not report which one failed: it was the one that is tried first.
            pilot = await self._pilot(document)
            view = Viewpoint(document.tenant, pilot.site if pilot is not None else "")
            first = (await self.catalogue.locate([file.name], view))[file.name].replicas[0]
            await self.replicas.mark(document.tenant, file.name, first.element, f"incident {ask.incident.id}")
        return await self.jobs.recover(ask.incident, ask.do, step=ask.id)

    # -- another target ----------------------------------------------------------------------------------------

    async def _other_target(self, ask: StepRequest, document: JobDocument, place: str) -> ActionOutcome:
        """Keep the job away from where it failed; its next pilot stages the files at its own site, and outputs go to that site's element."""
        host = document.last.host if document.last is not None else ""
        pilot = await self._pilot(document)
        alive = await self.pilots.find_pilots(tenant=document.tenant, state=PilotState.ALIVE.value)
        sites = {pilot.site for pilot in alive}
        left = {host} if host else set[str]()
        if place and place not in sites:
            return ActionOutcome(done=False, detail=f"there is no pilot at {place}")
        if place:
            left |= {at_site(site) for site in sites if site != place}
        elif pilot is not None and sites - {pilot.site}:
            left.add(at_site(pilot.site))
        elif not any(pilot.host != host for pilot in alive):
            return ActionOutcome(done=False, detail="there is no other target: every pilot is where it failed")
        until = self.clock.now() + AVOID_FOR
        before = cast("Mapping[str, int]", document.extra.get(AVOIDED, {}))
        avoided = dict(
            sorted({**before, **dict.fromkeys(left, until)}.items(), key=lambda pair: pair[1])[-MAX_AVOIDED:]
        )
        return await self.jobs.recover(ask.incident, ask.do, step=ask.id, notes={AVOIDED: avoided})

    # -- room --------------------------------------------------------------------------------------------------

    async def _free(self, ask: StepRequest, document: JobDocument, size: int) -> ActionOutcome:
        """Free space on the element that was full for the outputs, or on the host by trimming its caches."""
        last, element = document.last, await self._element(document)
        if element is not None:
            freed = await self.elements.free(element, document.tenant, size)
            if not freed:
                return ActionOutcome(done=False, detail=f"nothing on {element.name} may be removed")
            return ActionOutcome(done=True, detail=f"freed {freed} bytes on {element.name}")
        if last is not None and last.host:
            await self._trim(ask, document, last.host, size)
        return await self.jobs.recover(ask.incident, ask.do, step=ask.id, notes={FREE: size})

    async def room_at(self, document: JobDocument) -> str:
        """Where space could be freed for a job's files: `element`, `cache`, or empty."""
        if await self._element(document) is not None:
            return "element"
        pilot = await self._pilot(document)
        return "cache" if pilot is not None and pilot.extra.get("cache") else ""

    async def _element(self, document: JobDocument) -> StorageElement | None:
        """The element for the outputs of a job's last attempt; None: it did not fail there."""
        last, pilot = document.last, await self._pilot(document)
        if last is None or last.stage != "staging-out" or pilot is None:
            return None
        own = str(pilot.extra.get("element") or "")
        return self.elements.elements.outputs_for(document.tenant, pilot.site, own)

    async def _trim(self, ask: StepRequest, document: JobDocument, host: str, size: int) -> None:
        """Tell every pilot of the host to trim its cache; the one that claims the job next does so in any case."""
        alive = await self.pilots.find_pilots(tenant=document.tenant, state=PilotState.ALIVE.value)
        orders = [
            Record(
                f"order:{ask.id}:{pilot.id}",
                document.tenant,
                "order",
                document.id,
                self.clock.now(),
                {"order": "trim", "pilot": pilot.id, "bytes": size},
            )
            for pilot in alive
            if pilot.host == host
        ]
        if orders:
            await self.store.add_records(orders)

    async def _pilot(self, document: JobDocument) -> Pilot | None:
        """The pilot of the last attempt, from the job's story."""
        names = [line.by for line in document.history if line.event == "claim"]
        known = await self.pilots.get_pilot(names[-1]) if names else None
        return known.pilot if known is not None and known.pilot.tenant == document.tenant else None


def _told(document: JobDocument, file: LogicalFile) -> bool:
    """Whether the pilot of the last attempt reported which replica failed: then one was marked after that attempt began."""
    began = max((line.at for line in document.history if line.event == "claim"), default=0)
    return any(replica.bad_since is not None and replica.bad_since >= began for replica in file.replicas)
