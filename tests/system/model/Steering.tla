------------------------------ MODULE Steering ------------------------------
(***************************************************************************)
(* A user's job array on a batch system, and the watcher that has a failed *)
(* element run once more under its own id. Calls and their answers get     *)
(* lost, and the watcher is killed between any two calls.                  *)
(*                                                                         *)
(* Each "@stands-for" line names the Python code that an operator or an    *)
(* action stands for; test_model.py checks that it exists.                 *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Elements,       \* the elements of one array
    NoOne,          \* no order, no element
    Starts,         \* so often the batch system starts one element at most
    Faults,         \* calls or answers that are lost, and kills of the watcher, in all
    \* The checks of the protocol. A known-bad variant switches one of them off.
    SteersElements, \* an act names an element, never the id of the array
    MarksAreChecked \* an act is not repeated if the job carries its mark

VARIABLES
    element,    \* what the batch system says of each: state, starts, mark
    orders,     \* how many orders were given for each element
    open,       \* the order of each element that is not answered yet
    watcher,    \* what the watcher is doing
    well,       \* elements that have ended well
    left,       \* faults that may still happen
    broken      \* the promise that was broken first; empty

vars == <<element, orders, open, watcher, well, left, broken>>

Symmetry == Permutations(Elements)

Idle == [does |-> "nothing"]

Init ==
    /\ element = [e \in Elements |-> [state |-> "waiting", starts |-> 0, mark |-> 0]]
    /\ orders = [e \in Elements |-> 0]
    /\ open = [e \in Elements |-> FALSE]
    /\ watcher = Idle
    /\ well = {}
    /\ left = Faults
    /\ broken = ""

Fault == left > 0 /\ left' = left - 1
Break(promise) == IF broken = "" THEN promise ELSE broken

-----------------------------------------------------------------------------
(* The batch system.                                                       *)

Start(e) ==
    /\ element[e].state = "waiting" /\ element[e].starts < Starts
    /\ element' = [element EXCEPT ![e].state = "running", ![e].starts = @ + 1]
    /\ broken' = IF e \in well THEN Break("an element that had ended well was run again")
                 ELSE IF element[e].starts > orders[e] THEN Break("one order ran an element twice")
                 ELSE broken
    /\ UNCHANGED <<orders, open, watcher, well, left>>

End(e) ==
    /\ element[e].state = "running"
    /\ \/ element' = [element EXCEPT ![e].state = "failed"] /\ UNCHANGED well
       \/ element' = [element EXCEPT ![e].state = "completed"] /\ well' = well \cup {e}
    /\ UNCHANGED <<orders, open, watcher, left, broken>>

(* What an act does to one job. The id of an array means every element.    *)
Named(e) == IF SteersElements THEN {e} ELSE Elements
Requeued(j) == IF j.state = "waiting" THEN j ELSE [j EXCEPT !.state = "held"]
Freed(j) == IF j.state = "held" THEN [j EXCEPT !.state = "waiting"] ELSE j
Apply(f(_), e) == [x \in Elements |-> IF x \in Named(e) THEN f(element[x]) ELSE element[x]]

-----------------------------------------------------------------------------
(* A rule or a person orders that a failed element runs once more.         *)
(* @stands-for forestay.domain.sites.watched_job.fate                      *)
(* @stands-for forestay.ports.exceptions.exception_service.ExceptionService.news *)
Order(e) ==
    /\ element[e].state = "failed" /\ ~open[e] /\ watcher = Idle
    \* A failure is reported once: its order is the next one.
    /\ orders[e] < element[e].starts
    /\ orders' = [orders EXCEPT ![e] = @ + 1]
    /\ open' = [open EXCEPT ![e] = TRUE]
    /\ UNCHANGED <<element, watcher, well, left, broken>>

(* The watcher takes the order up and looks at the job first.              *)
(* @stands-for forestay.services.insertion.batch_job_recovery.BatchJobRecovery.look *)
(* @stands-for forestay.domain.sites.watched_job.several                   *)
(* @stands-for forestay.domain.sites.watched_job.obstacle                  *)
(* @stands-for forestay.adapters.slurm.steering.SlurmSteering.again        *)
TakeUp(e) ==
    /\ watcher = Idle /\ open[e]
    /\ LET marked == MarksAreChecked /\ element[e].mark = orders[e]
           over == element[e].state \in {"failed", "completed"}
           held == element[e].state = "held"
       IN  watcher' = [element |-> e, does |->
               IF marked /\ ~held THEN "answer"
               ELSE IF over THEN "requeue"
               ELSE IF ~marked THEN "mark"
               ELSE "release"]
    /\ UNCHANGED <<element, orders, open, well, left, broken>>

(* One call to the batch system: done and answered, done and the answer    *)
(* lost, or lost itself. Without an answer the order is taken up anew.     *)
Call(now, next, f(_)) ==
    /\ watcher.does = now
    /\ \/ element' = Apply(f, watcher.element) /\ watcher' = [watcher EXCEPT !.does = next] /\ UNCHANGED left
       \/ element' = Apply(f, watcher.element) /\ watcher' = Idle /\ Fault
       \/ UNCHANGED element /\ watcher' = Idle /\ Fault

Requeue ==
    /\ Call("requeue", "mark", Requeued)
    /\ broken' =
         IF \E x \in Elements : x # watcher.element /\ element[x].state = "running" /\ element'[x].state = "held"
         THEN Break("an element that was running was stopped for another one")
         ELSE broken
    /\ UNCHANGED <<orders, open, well>>

Mark ==
    /\ LET Marked(j) == [j EXCEPT !.mark = orders[watcher.element]]
       IN  Call("mark", "release", Marked)
    /\ UNCHANGED <<orders, open, well, broken>>

Release ==
    /\ Call("release", "answer", Freed)
    /\ UNCHANGED <<orders, open, well, broken>>

(* @stands-for forestay.ports.exceptions.exception_service.ExceptionService.answer *)
Answer ==
    /\ watcher.does = "answer"
    /\ watcher' = Idle
    /\ \/ open' = [open EXCEPT ![watcher.element] = FALSE] /\ UNCHANGED left
       \/ UNCHANGED open /\ Fault
    /\ UNCHANGED <<element, orders, well, broken>>

WatcherCrash ==
    /\ watcher # Idle
    /\ Fault
    /\ watcher' = Idle
    /\ UNCHANGED <<element, orders, open, well, broken>>

-----------------------------------------------------------------------------
Next ==
    \/ \E e \in Elements : Start(e) \/ End(e) \/ Order(e) \/ TakeUp(e)
    \/ Requeue \/ Mark \/ Release \/ Answer \/ WatcherCrash

Spec == Init /\ [][Next]_vars

NothingBroken == broken = ""

(* Who is held is held for an order that somebody still works on: nothing  *)
(* is left behind in the queue for ever.                                   *)
NobodyIsLeftHeld == \A e \in Elements : element[e].state = "held" => open[e]
=============================================================================
