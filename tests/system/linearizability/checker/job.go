package main

import "fmt"

// maxReleases is after how many lost claims a job is set aside; the same number stands in Forestay's domain.
const maxReleases = 8

// job is one document on the level of the writer: who holds the job, for which attempt. The law is told here once more,
// apart from the code that is put to the test.
type job struct {
	State    string // "" when there is no job
	Attempt  int64
	Rev      int64
	Holder   string // the claim that holds it
	Former   string // the claim that was taken away last, while nobody else claimed
	Last     string // the claim whose end was applied last
	Releases int
	Closed   bool
}

// step says what an operation makes of the job, or that it cannot be the next one; calls that were not settled are
// open to the end of the history, as on the level of the store.
func (j job) step(op *Op) (bool, job) {
	if op == closing {
		j.Closed = true
		return true, j
	}
	if op.Kind == "final" {
		if op.Result == "missing" {
			return j.State == "", j
		}
		return j.State == op.State && j.Attempt == op.Attempt && j.Rev == op.Rev && j.Holder == op.Holder, j
	}
	if !op.acknowledged() {
		if j.Closed {
			return true, j
		}
		return j.change(op)
	}
	switch op.Kind {
	case "create":
		return j.change(op)
	case "claim":
		ok, next := j.change(op)
		return ok && op.Rev == next.Rev, next
	case "end":
		// The writer vouches for an end that stands already, even under a newer claim: the answer may show later lines.
		if j.Last == op.Claim {
			return op.Rev >= j.Rev, j
		}
		ok, next := j.change(op)
		return ok && op.Rev >= next.Rev, next
	case "release":
		// Whoever finds the claim taken away by another is told that it is, as was asked for.
		if j.Holder == "" && j.Former == op.Claim && (j.State == "available" || j.State == "faulted") {
			return op.Rev == j.Rev, j
		}
		ok, next := j.change(op)
		return ok && op.Rev == next.Rev, next
	}
	return false, j
}

// change is the effect of an operation on a job that it fits.
func (j job) change(op *Op) (bool, job) {
	switch op.Kind {
	case "create":
		if j.State != "" {
			return false, j
		}
		made := job{State: "available", Rev: 1}
		if op.Claim != "" { // created for a pilot that waited, in one write
			made.State, made.Attempt, made.Holder, made.Rev = "running", 1, op.Claim, 2
		}
		return true, made
	case "claim":
		if j.State != "available" || j.Attempt+1 != op.Attempt {
			return false, j
		}
		j.State, j.Attempt, j.Holder, j.Former, j.Rev = "running", op.Attempt, op.Claim, "", j.Rev+1
		return true, j
	case "end":
		if j.Attempt != op.Attempt {
			return false, j
		}
		held := j.State == "running" && j.Holder == op.Claim
		late := (j.State == "available" || j.State == "faulted") && j.Former == op.Claim && op.Outcome == "ok"
		switch {
		case !held && !late:
			return false, j
		case op.Outcome == "ok":
			j.State, j.Holder, j.Former, j.Last, j.Rev = "completed", "", "", op.Claim, j.Rev+1
		default: // a fault and, in the same write, the answer to it
			j.State, j.Holder, j.Last, j.Rev = "available", "", op.Claim, j.Rev+2
		}
		return true, j
	case "release":
		if j.State != "running" || j.Holder != op.Claim {
			return false, j
		}
		j.Holder, j.Former, j.Releases, j.Rev = "", op.Claim, j.Releases+1, j.Rev+1
		j.State = "available"
		if j.Releases >= maxReleases {
			j.State = "faulted"
		}
		return true, j
	}
	return false, j
}

func (j job) String() string {
	if j.State == "" {
		return "nothing"
	}
	if j.Holder != "" {
		return fmt.Sprintf("%s by %s, attempt %d, rev %d", j.State, j.Holder, j.Attempt, j.Rev)
	}
	return fmt.Sprintf("%s, attempt %d, rev %d", j.State, j.Attempt, j.Rev)
}
