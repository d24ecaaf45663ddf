package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sort"
)

// Version is which writing of a document this is.
type Version struct {
	Number int64 `json:"number"`
	Term   int64 `json:"term"`
}

// follows says whether v can be a later writing of the same document than w.
func (v Version) follows(w Version) bool { return v.Number > w.Number && v.Term >= w.Term }

// Seen is a version together with the value that was seen under it.
type Seen struct {
	Version
	Value string `json:"value"`
}

// Op is one operation of a recorded history.
type Op struct {
	Level    string `json:"level"` // store: version-checked writes; writer: claims and ends
	Client   string `json:"client"`
	Document string `json:"document"`
	Kind     string `json:"kind"`
	Call     int64  `json:"call"`
	Return   int64  `json:"return"` // 0: never
	Result   string `json:"result"`

	// Level store: create and cas write Value; cas expects Expected; read and final show Value. Version is the
	// result's.
	Expected *Seen   `json:"expected,omitempty"`
	Value    string  `json:"value,omitempty"`
	Version  Version `json:"version"`

	// Level writer: what was asked for, and how the document stood in the answer.
	Claim   string `json:"claim,omitempty"`
	Attempt int64  `json:"attempt,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	State   string `json:"state,omitempty"`
	Rev     int64  `json:"rev,omitempty"`
	Holder  string `json:"holder,omitempty"`

	effective bool // took effect in the order that was found
}

const (
	storeLevel  = "store"
	writerLevel = "writer"
)

var results = map[string]map[string]bool{
	"create":  {"written": true, "conflicted": true, "unknown": true},
	"cas":     {"written": true, "conflicted": true, "unknown": true},
	"read":    {"found": true, "missing": true, "unknown": true},
	"final":   {"found": true, "missing": true},
	"claim":   {"settled": true, "refused": true, "missing": true, "unsettled": true, "unknown": true},
	"end":     {"settled": true, "refused": true, "missing": true, "unsettled": true, "unknown": true},
	"release": {"settled": true, "refused": true, "missing": true, "unsettled": true, "unknown": true},
}

// writes says whether the operation may change the document.
func (op *Op) writes() bool { return op.Kind != "read" && op.Kind != "final" }

// acknowledged says whether the store, or the writer, vouched for the change. Everything else may have taken place or
// may yet: a conflict is no proof of the contrary.
func (op *Op) acknowledged() bool { return op.Result == "written" || op.Result == "settled" }

func (op *Op) check() error {
	allowed, known := results[op.Kind]
	switch {
	case op.Level != storeLevel && op.Level != writerLevel:
		return fmt.Errorf("no such level: %q", op.Level)
	case !known:
		return fmt.Errorf("no such kind: %q", op.Kind)
	case !allowed[op.Result]:
		return fmt.Errorf("a %s has no result %q", op.Kind, op.Result)
	case op.Document == "" || op.Client == "":
		return fmt.Errorf("an operation has a document and a client")
	case op.Call <= 0 || (op.Return != 0 && op.Return < op.Call):
		return fmt.Errorf("times do not fit: called %d, returned %d", op.Call, op.Return)
	case op.Return == 0 && op.Result != "unknown":
		return fmt.Errorf("an operation that never returned has no result but unknown")
	case op.Kind == "cas" && op.Expected == nil:
		return fmt.Errorf("a cas expects a version")
	case op.Level == storeLevel && op.writes() && op.Value == "":
		return fmt.Errorf("a write has a value")
	case op.Level == storeLevel && op.Result == "found" && op.Value == "":
		return fmt.Errorf("a read that found something has a value")
	}
	return nil
}

// readHistory gives the operations of each document, in the order of their calls. A line that cannot be understood is
// an error: half a history proves nothing.
func readHistory(from io.Reader) (map[string][]*Op, error) {
	documents := map[string][]*Op{}
	values := map[string]bool{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		op := &Op{}
		if err := json.Unmarshal(lines.Bytes(), op); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if err := op.check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if op.Level == storeLevel && op.writes() {
			// Everything rests on it that a value names its write.
			if values[op.Value] {
				return nil, fmt.Errorf("line %d: value %q is written twice", number, op.Value)
			}
			values[op.Value] = true
		}
		documents[op.Document] = append(documents[op.Document], op)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	for _, ops := range documents {
		sort.SliceStable(ops, func(i, j int) bool { return ops[i].Call < ops[j].Call })
		for _, op := range ops {
			if op.Level != ops[0].Level {
				return nil, fmt.Errorf("document %s is used on two levels", op.Document)
			}
		}
	}
	return documents, nil
}
