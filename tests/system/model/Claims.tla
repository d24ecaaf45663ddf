------------------------------- MODULE Claims -------------------------------
(***************************************************************************)
(* Claim, lease and generation of jobs: pilots, servers, an orphan scanner *)
(* and a store that loses requests and answers, executes a write late,     *)
(* shows writes that are rolled back, and is restored from a backup.       *)
(*                                                                         *)
(* Each "@stands-for" line names the Python code that an operator or an    *)
(* action stands for; test_model.py checks that it exists.                 *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Pilots, Jobs,
    NoOne,          \* no claim, no winner, no isolated copy
    Scanner,        \* the orphan scanner, a writer beside the pilots' requests
    Tries,          \* claims that are tried for one pilot
    Faults,         \* faults that may happen, of any kind, in any order
    \* The checks of the protocol. A known-bad variant switches one of them off.
    ClaimsCheckVersion, ReleasesCheckVersion, ReadsAreConfirmed, VersionsHaveTerm,
    EndsNameTheClaim, EndsNameTheAttempt, EndsNameTheGeneration,
    LeaseIsChecked, LeaseCountsFromRequest, RequestsEndBeforeTwoHeartbeats

VARIABLES
    doc,        \* the durable document of each job
    dirty,      \* what an isolated copy of the store shows instead, or NoOne
    net,        \* writes on their way to the store
    op,         \* what a server does for a pilot, and what the scanner does
    pilot,      \* what each pilot believes
    lease,      \* whether the pilot's own clock says that its lease is good
    tried,      \* claims tried for each pilot: the source of fresh claim ids
    ran,        \* payloads that began: job, token, claim
    left,       \* faults that may still happen
    broken      \* the promise that was broken first; empty

vars == <<doc, dirty, net, op, pilot, lease, tried, ran, left, broken>>

Symmetry == Permutations(Pilots) \cup Permutations(Jobs)

Writers == Pilots \cup {Scanner}
Idle == [does |-> "nothing"]
Free == [is |-> "free"]

Submitted == [state |-> "available", generation |-> 0, attempt |-> 0,
              claim |-> NoOne, former |-> NoOne, winner |-> NoOne, overlap |-> FALSE]

Init ==
    /\ doc = [j \in Jobs |-> Submitted]
    /\ dirty = [j \in Jobs |-> NoOne]
    /\ net = {}
    /\ op = [w \in Writers |-> Idle]
    /\ pilot = [p \in Pilots |-> Free]
    /\ lease = [p \in Pilots |-> TRUE]
    /\ tried = [p \in Pilots |-> 0]
    /\ ran = {}
    /\ left = Faults
    /\ broken = ""

Fault == left > 0 /\ left' = left - 1
Break(promise) == IF broken = "" THEN promise ELSE broken

-----------------------------------------------------------------------------
(* What the domain decides. Each operator is one function, without what    *)
(* concerns holders, failures of payloads, and text.                       *)

(* @stands-for forestay.domain.jobs.job_document.Token                     *)
Token(d) == <<d.generation, d.attempt>>

(* @stands-for forestay.domain.jobs.claim.claimable                        *)
Claimable(d) == d.state = "available"

(* @stands-for forestay.domain.jobs.claim.claim                            *)
Claimed(d, id) == [d EXCEPT !.state = "running", !.attempt = @ + 1, !.claim = id, !.former = NoOne]

(* Counted by the version of the write alone.                              *)
(* @stands-for forestay.domain.jobs.claim.confirm                          *)
Confirmed(d) == d

(* @stands-for forestay.domain.jobs.claim.release                          *)
MayRelease(d, id) == d.state = "running" /\ d.claim = id
Released(d, id, overlap) ==
    [d EXCEPT !.state = "available", !.claim = NoOne, !.former = id, !.overlap = @ \/ overlap]

(* A completion of the holder counts, and so does a late one if nobody has *)
(* claimed the job since.                                                  *)
(* @stands-for forestay.domain.jobs.claim.end                              *)
Repeated(d, id) == d.winner = id
Applies(d, id, token) ==
    /\ EndsNameTheGeneration => token[1] = d.generation
    /\ EndsNameTheAttempt => token[2] = d.attempt
    /\ CASE d.state = "running" -> EndsNameTheClaim => d.claim = id
         [] d.state = "available" -> EndsNameTheClaim => d.former = id
         [] OTHER -> FALSE
Ended(d, id) == [d EXCEPT !.state = "completed", !.claim = NoOne, !.winner = id]

(* @stands-for forestay.domain.jobs.restoring.restored                     *)
(* @stands-for forestay.domain.jobs.restoring.next_generation              *)
Restored(d, generation) ==
    [d EXCEPT !.generation = generation, !.state = "available", !.claim = NoOne, !.former = NoOne, !.overlap = TRUE]

-----------------------------------------------------------------------------
(* The store: a document is written whole, and only over the version that  *)
(* was read. A version is told relative to the durable document, which is  *)
(* at 0; a write that an isolated primary took has another term.           *)
(* @stands-for forestay.ports.jobs.job_store.Version                       *)
(* @stands-for forestay.ports.jobs.job_store.JobStore.write                *)

(* A read may come from any copy.                                          *)
(* @stands-for forestay.ports.jobs.job_store.JobStore.get                  *)
Shown(j) ==
    {[document |-> doc[j], at |-> 0, isolated |-> FALSE]}
        \cup (IF dirty[j] = NoOne THEN {} ELSE {[document |-> dirty[j].document, at |-> dirty[j].at, isolated |-> TRUE]})

Send(w, j, seen, new, checked) ==
    [by |-> w, job |-> j, new |-> new, checked |-> checked, at |-> seen.at, isolated |-> seen.isolated, awaited |-> TRUE]

MatchesDurable(e) == e.checked => e.at = 0 /\ (VersionsHaveTerm => ~e.isolated)
MatchesIsolated(e, copy) ==
    e.checked => IF copy = NoOne THEN e.at = 0 /\ ~e.isolated
                 ELSE e.at = copy.at /\ (VersionsHaveTerm => e.isolated)

(* A write that no copy can ever take is refused: its sender hears of a    *)
(* conflict, which says no more than silence does.                         *)
Hopeless(e, copies) ==
    /\ ~MatchesDurable(e)
    /\ copies[e.job] # NoOne => ~MatchesIsolated(e, copies[e.job])
    /\ VersionsHaveTerm \/ e.at < 0

(* The writes that are left, and what becomes of those who wait for one.   *)
Settle(es, copies, told, how) ==
    /\ net' = {e \in es : ~Hopeless(e, copies)}
    /\ op' = [w \in Writers |->
                 IF w = told THEN [op[w] EXCEPT !.phase = how]
                 ELSE IF \E e \in es : e.by = w /\ e.awaited /\ Hopeless(e, copies)
                 THEN [op[w] EXCEPT !.phase = "unsure"]
                 ELSE op[w]]

(* Which promises a durable write breaks.                                  *)
Judged(before, after) ==
    IF before.winner # NoOne /\ after.winner # before.winner
    THEN Break("a committed completion was overwritten")
    ELSE IF after.winner # before.winner /\ before.claim # after.winner /\ before.former # after.winner
    THEN Break("a completion was committed for a claim that did not hold the job")
    ELSE broken

Later(e, j) == IF e.job = j THEN [e EXCEPT !.at = @ - 1] ELSE e

Execute(e) ==
    /\ MatchesDurable(e)
    /\ doc' = [doc EXCEPT ![e.job] = e.new]
    /\ dirty' = [dirty EXCEPT ![e.job] = IF @ = NoOne THEN NoOne ELSE [@ EXCEPT !.at = @ - 1]]
    /\ broken' = Judged(doc[e.job], e.new)
    /\ LET others == {Later(o, e.job) : o \in net \ {e}}
       IN  IF e.awaited
           THEN \/ Settle(others, dirty', e.by, "acknowledged") /\ UNCHANGED left
                \/ Settle(others, dirty', e.by, "unsure") /\ Fault
           ELSE Settle(others, dirty', NoOne, "") /\ UNCHANGED left
    /\ UNCHANGED <<pilot, lease, tried, ran>>

(* The sender gives up waiting. The write is lost, or takes place later.   *)
TimeOut(e) ==
    /\ e.awaited
    /\ Fault
    /\ net' = (net \ {e}) \cup {[e EXCEPT !.awaited = FALSE]}
    /\ op' = [op EXCEPT ![e.by].phase = "unsure"]
    /\ UNCHANGED <<doc, dirty, pilot, lease, tried, ran, broken>>

(* An isolated primary takes a write and shows it. Nobody acknowledges it. *)
(* Each is a fault: otherwise confirmations there would go on for ever.    *)
ExecuteIsolated(e) ==
    /\ MatchesIsolated(e, dirty[e.job])
    /\ Fault
    /\ dirty' = [dirty EXCEPT ![e.job] = [document |-> e.new, at |-> IF @ = NoOne THEN 1 ELSE @.at + 1]]
    /\ Settle(net \ {e}, dirty', IF e.awaited THEN e.by ELSE NoOne, "unsure")
    /\ UNCHANGED <<doc, pilot, lease, tried, ran, broken>>

RollBack(j) ==
    /\ dirty[j] # NoOne
    /\ dirty' = [dirty EXCEPT ![j] = NoOne]
    /\ Settle(net, dirty', NoOne, "")
    /\ UNCHANGED <<doc, pilot, lease, tried, ran, left, broken>>

-----------------------------------------------------------------------------
(* Servers. `op` is one request that a server works on by the checked      *)
(* writer; a killed server forgets it, and its writes stay on their way.   *)
(* @stands-for forestay.services.shared.checked_writer.CheckedWriter.write *)

Write(w, task, e) ==
    /\ op' = [op EXCEPT ![w] = task @@ [phase |-> "waits"]]
    /\ net' = net \cup {e}

(* @stands-for forestay.services.scheduling.claim_dispatcher.ClaimDispatcher.claim *)
AskForJob(p, j) ==
    /\ pilot[p] = Free /\ lease[p] /\ op[p] = Idle /\ tried[p] < Tries
    /\ \E seen \in Shown(j) :
        /\ Claimable(seen.document)
        /\ LET id == <<p, tried[p] + 1>>
               new == Claimed(seen.document, id)
           IN  Write(p, [does |-> "claim", job |-> j, id |-> id, token |-> Token(new), stale |-> FALSE],
                     Send(p, j, seen, new, ClaimsCheckVersion))
    /\ tried' = [tried EXCEPT ![p] = @ + 1]
    /\ pilot' = [pilot EXCEPT ![p] = [is |-> "asking"]]
    /\ UNCHANGED <<doc, dirty, lease, ran, left, broken>>

GiveUp(p) == [pilot EXCEPT ![p] = IF @.is = "asking" THEN Free ELSE @]

(* After an unclear answer the document is read again. A claim that it     *)
(* shows is confirmed by another write; otherwise its id is dropped.       *)
ResolveClaim(p) ==
    /\ op[p].does = "claim" /\ op[p].phase = "unsure"
    /\ \E seen \in Shown(op[p].job) :
        IF seen.document.claim # op[p].id
        THEN op' = [op EXCEPT ![p] = Idle] /\ pilot' = GiveUp(p) /\ UNCHANGED net
        ELSE /\ UNCHANGED pilot
             /\ IF ReadsAreConfirmed
                THEN Write(p, op[p], Send(p, op[p].job, seen, Confirmed(seen.document), TRUE))
                ELSE op' = [op EXCEPT ![p].phase = "acknowledged"] /\ UNCHANGED net
    /\ UNCHANGED <<doc, dirty, lease, tried, ran, left, broken>>

(* The answer reaches the pilot, or is lost: then nobody knows the claim.  *)
Grant(p) ==
    /\ op[p].does = "claim" /\ op[p].phase = "acknowledged"
    /\ op' = [op EXCEPT ![p] = Idle]
    /\ IF pilot[p].is = "asking"
       THEN \/ /\ pilot' = [pilot EXCEPT ![p] =
                    IF LeaseIsChecked /\ (~lease[p] \/ (LeaseCountsFromRequest /\ op[p].stale)) THEN Free
                    ELSE [is |-> "holds", job |-> op[p].job, id |-> op[p].id, token |-> op[p].token]]
               /\ UNCHANGED left
            \/ pilot' = GiveUp(p) /\ Fault
       ELSE UNCHANGED <<pilot, left>>
    /\ UNCHANGED <<doc, dirty, net, lease, tried, ran, broken>>

ServerCrash(w) ==
    /\ op[w] # Idle
    /\ Fault
    /\ op' = [op EXCEPT ![w] = Idle]
    /\ net' = {IF e.by = w THEN [e EXCEPT !.awaited = FALSE] ELSE e : e \in net}
    /\ pilot' = IF w \in Pilots THEN GiveUp(w) ELSE pilot
    /\ UNCHANGED <<doc, dirty, lease, tried, ran, broken>>

-----------------------------------------------------------------------------
(* Pilots. Nothing is begun under a lapsed lease, nor after it if it was   *)
(* claimed before: it may be somebody else's by then. `Lapse` and `Grant`  *)
(* give such claims back.                                                  *)
(* @stands-for forestay_pilot.link.lease.PilotLease.wait_good              *)
Begin(p) ==
    /\ pilot[p].is = "holds"
    /\ LET j == pilot[p].job
           start == [job |-> j, token |-> pilot[p].token, id |-> pilot[p].id]
       IN  /\ ran' = ran \cup {start}
           /\ broken' =
                IF \E s \in ran : s.job = j /\ s.token = start.token /\ s.id # start.id
                THEN Break("two payloads began with the same attempt number")
                ELSE IF doc[j].generation = start.token[1] /\ doc[j].claim # start.id
                THEN Break("a payload began although its claim did not hold the job")
                ELSE broken
    /\ pilot' = [pilot EXCEPT ![p].is = "runs"]
    /\ UNCHANGED <<doc, dirty, net, op, lease, tried, left>>

(* @stands-for forestay_pilot.link.lease.PilotLease.good                   *)
Lapse(p) ==
    /\ lease[p] /\ pilot[p] # Free
    /\ Fault
    /\ lease' = [lease EXCEPT ![p] = FALSE]
    /\ pilot' = [pilot EXCEPT ![p] = IF @.is = "holds" /\ LeaseIsChecked THEN Free ELSE @]
    /\ op' = [op EXCEPT ![p] = IF @.does = "claim" THEN [@ EXCEPT !.stale = TRUE] ELSE @]
    /\ UNCHANGED <<doc, dirty, net, tried, ran, broken>>

(* @stands-for forestay_pilot.link.lease.PilotLease.extend                 *)
Extend(p) ==
    /\ ~lease[p] /\ pilot[p].is # "dead"
    /\ lease' = [lease EXCEPT ![p] = TRUE]
    /\ UNCHANGED <<doc, dirty, net, op, pilot, tried, ran, left, broken>>

PilotCrash(p) ==
    /\ pilot[p].is \notin {"dead", "free"}
    /\ Fault
    /\ pilot' = [pilot EXCEPT ![p] = [is |-> "dead"]]
    /\ lease' = [lease EXCEPT ![p] = FALSE]
    /\ UNCHANGED <<doc, dirty, net, op, tried, ran, broken>>

-----------------------------------------------------------------------------
(* Completions, sent again until they are settled. Finished work is not    *)
(* thrown away on a read alone: such an answer waits for a write too.      *)
(* @stands-for forestay.services.jobs.job_completions.JobCompletions.end   *)

Decide(p, task, seen) ==
    LET e(new) == Send(p, task.job, seen, new, TRUE)
        d == seen.document
        says(answer) == [does |-> "complete", job |-> task.job, id |-> task.id, token |-> task.token, says |-> answer]
    IN  IF Repeated(d, task.id) THEN Write(p, says("committed"), e(Confirmed(d)))
        ELSE IF Applies(d, task.id, task.token) THEN Write(p, says("committed"), e(Ended(d, task.id)))
        ELSE Write(p, says("superseded"), e(Confirmed(d)))

(* The payload ends well, and its pilot tells a server; or tells it again. *)
Complete(p) ==
    /\ pilot[p].is \in {"runs", "ended"} /\ op[p] = Idle
    /\ \E seen \in Shown(pilot[p].job) : Decide(p, pilot[p], seen)
    /\ pilot' = [pilot EXCEPT ![p].is = "ended"]
    /\ UNCHANGED <<doc, dirty, lease, tried, ran, left, broken>>

ResolveCompletion(p) ==
    /\ op[p].does = "complete" /\ op[p].phase = "unsure"
    /\ \E seen \in Shown(op[p].job) : Decide(p, op[p], seen)
    /\ UNCHANGED <<doc, dirty, pilot, lease, tried, ran, left, broken>>

(* The pilot is told and forgets the job, or the answer is lost.           *)
Tell(p) ==
    /\ op[p].does = "complete" /\ op[p].phase = "acknowledged"
    /\ LET d == doc[op[p].job]
       IN  broken' =
             IF op[p].says = "committed" /\ d.generation = op[p].token[1] /\ d.winner # op[p].id
             THEN Break("a pilot was told of a commit that is not in the document")
             ELSE IF op[p].says = "superseded" /\ d.claim = op[p].id
             THEN Break("finished work of the holder was thrown away")
             ELSE broken
    /\ op' = [op EXCEPT ![p] = Idle]
    /\ IF pilot[p].is = "ended"
       THEN \/ pilot' = [pilot EXCEPT ![p] = Free] /\ UNCHANGED left
            \/ UNCHANGED pilot /\ Fault
       ELSE UNCHANGED <<pilot, left>>
    /\ UNCHANGED <<doc, dirty, net, lease, tried, ran>>

-----------------------------------------------------------------------------
(* The orphan scanner. Its patience is longer than a lease, so a pilot is  *)
(* silent only when its own lease has lapsed. A batch system that says     *)
(* that the pilot is dead rules an overlap out.                            *)
(* @stands-for forestay.domain.pilots.orphans.patience                     *)
(* @stands-for forestay.domain.pilots.orphans.look                         *)
(* @stands-for forestay.domain.pilots.orphans.judge                        *)
Silent(p) == ~lease[p]

(* Or its heartbeats do not name the claim: the answer was lost.           *)
(* @stands-for forestay.domain.pilots.orphans.forgotten                    *)
Unnamed(p, id) ==
    /\ lease[p]
    /\ ~(pilot[p].is \in {"holds", "runs", "ended"} /\ pilot[p].id = id)
    /\ RequestsEndBeforeTwoHeartbeats => ~(op[p].does = "claim" /\ op[p].id = id)

(* @stands-for forestay.services.pilots.orphan_scanner.OrphanScanner.scan  *)
(* @stands-for forestay.services.jobs.claim_releaser.release_write         *)
Release(j) ==
    /\ op[Scanner] = Idle
    /\ \E seen \in Shown(j) :
        LET d == seen.document
            p == d.claim[1]
            overlap == Silent(p) /\ pilot[p].is # "dead"
        IN  /\ d.state = "running"
            /\ Silent(p) \/ Unnamed(p, d.claim)
            /\ Write(Scanner, [does |-> "release", job |-> j, id |-> d.claim, overlap |-> overlap],
                     Send(Scanner, j, seen, Released(d, d.claim, overlap), ReleasesCheckVersion))
    /\ UNCHANGED <<doc, dirty, pilot, lease, tried, ran, left, broken>>

ResolveRelease ==
    LET o == op[Scanner]
    IN  /\ o.does = "release" /\ o.phase = "unsure"
        /\ \E seen \in Shown(o.job) :
            LET d == seen.document
                e(new) == Send(Scanner, o.job, seen, new, ReleasesCheckVersion)
            IN  IF d.claim = NoOne /\ d.former = o.id THEN Write(Scanner, o, e(Confirmed(d)))
                ELSE IF MayRelease(d, o.id) THEN Write(Scanner, o, e(Released(d, o.id, o.overlap)))
                ELSE op' = [op EXCEPT ![Scanner] = Idle] /\ UNCHANGED net
        /\ UNCHANGED <<doc, dirty, pilot, lease, tried, ran, left, broken>>

ReleaseDone ==
    /\ op[Scanner].does = "release" /\ op[Scanner].phase = "acknowledged"
    /\ op' = [op EXCEPT ![Scanner] = Idle]
    /\ UNCHANGED <<doc, dirty, net, pilot, lease, tried, ran, left, broken>>

-----------------------------------------------------------------------------
(* The store is brought back as it was when the jobs had been submitted,   *)
(* while no server runs. Pilots go on with what they have.                 *)
Restore ==
    /\ Fault
    /\ \E j \in Jobs : doc[j].attempt > 0
    /\ doc' = [j \in Jobs |-> Restored(Submitted, doc[j].generation + 2)]
    /\ dirty' = [j \in Jobs |-> NoOne]
    /\ net' = {}
    /\ op' = [w \in Writers |-> Idle]
    /\ pilot' = [p \in Pilots |-> IF pilot[p].is = "asking" THEN Free ELSE pilot[p]]
    /\ UNCHANGED <<lease, tried, ran, broken>>

-----------------------------------------------------------------------------
(* Named, so that traces show which of them it was.                        *)
StoreExecutes == \E e \in net : Execute(e)
SenderTimesOut == \E e \in net : TimeOut(e)
IsolatedPrimaryExecutes == \E e \in net : ExecuteIsolated(e)

Next ==
    \/ StoreExecutes \/ SenderTimesOut \/ IsolatedPrimaryExecutes
    \/ \E j \in Jobs : RollBack(j) \/ Release(j)
    \/ \E p \in Pilots, j \in Jobs : AskForJob(p, j)
    \/ \E p \in Pilots :
        \/ ResolveClaim(p) \/ Grant(p) \/ Begin(p)
        \/ Complete(p) \/ ResolveCompletion(p) \/ Tell(p)
        \/ Lapse(p) \/ Extend(p) \/ PilotCrash(p)
    \/ \E w \in Writers : ServerCrash(w)
    \/ ResolveRelease \/ ReleaseDone \/ Restore

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold in every state.                                          *)
NothingBroken == broken = ""

(* Two payloads of one job run at the same time only where the document    *)
(* says so.                                                                *)
OverlapsAreRecorded ==
    \A p, q \in Pilots :
        p # q /\ pilot[p].is = "runs" /\ pilot[q].is = "runs" /\ pilot[p].job = pilot[q].job
            => doc[pilot[p].job].overlap
=============================================================================
