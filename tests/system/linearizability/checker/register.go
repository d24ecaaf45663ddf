package main

import "fmt"

// register is one document on the level of the store: a value under a version. Values are written once, so a value
// names its write.
type register struct {
	Value   string  // "" when there is no document
	Version Version // of Value, or of the last value whose version is known
	Pinned  bool    // Version is that of Value
	Closed  bool    // all that happened has happened
}

// nothing is the document before it is created. The first number a store gives may be 0.
var nothing = register{Version: Version{Number: -1}}

// step says what an operation makes of the document, or that it cannot be the next one.
//
// An acknowledged write must find exactly what it expected. One that was not acknowledged either finds what it expected
// and takes effect, or comes after everything else and does nothing: its call stays open to the end of the history.
func (r register) step(op *Op) (bool, register) {
	if op == closing {
		r.Closed = true
		return true, r
	}
	if op.Kind == "final" {
		if op.Result == "missing" {
			return r.Value == "", r
		}
		return r.Value == op.Value && (!r.Pinned || r.Version == op.Version), r
	}
	if !op.acknowledged() && r.Closed {
		return true, r
	}
	if !r.meets(op.Expected) {
		return false, r
	}
	if op.Expected != nil {
		r.Version = op.Expected.Version
	}
	if !op.acknowledged() {
		return true, register{Value: op.Value, Version: r.Version}
	}
	if !op.Version.follows(r.Version) {
		return false, r
	}
	return true, register{Value: op.Value, Version: op.Version, Pinned: true}
}

// meets says whether the document is at the version that a write expects.
func (r register) meets(expected *Seen) bool {
	if expected == nil {
		return r.Value == ""
	}
	if r.Value == "" || r.Value != expected.Value {
		return false
	}
	if r.Pinned {
		return r.Version == expected.Version
	}
	return expected.Version.follows(r.Version)
}

func (r register) String() string {
	if r.Value == "" {
		return "nothing"
	}
	if !r.Pinned {
		return fmt.Sprintf("%s at ?", r.Value)
	}
	return fmt.Sprintf("%s at %d/%d", r.Value, r.Version.Number, r.Version.Term)
}
