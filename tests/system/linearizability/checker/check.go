package main

import (
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// closing is the moment after the last return: from then on nothing takes effect.
var closing = &Op{Kind: "close"}

// model is the law of one document, for Porcupine.
func model(level string) porcupine.Model {
	made := porcupine.Model{
		DescribeOperation: func(input, _ interface{}) string { return input.(*Op).describe() },
		DescribeState:     func(state interface{}) string { return fmt.Sprint(state) },
	}
	if level == writerLevel {
		made.Init = func() interface{} { return job{} }
		made.Step = func(state, input, _ interface{}) (bool, interface{}) {
			ok, next := state.(job).step(input.(*Op))
			return ok, next
		}
		return made
	}
	made.Init = func() interface{} { return nothing }
	made.Step = func(state, input, _ interface{}) (bool, interface{}) {
		ok, next := state.(register).step(input.(*Op))
		return ok, next
	}
	return made
}

// operations is a document's history as Porcupine wants it: without reads, which are hints; with the calls that were
// not acknowledged open to the end.
func operations(ops []*Op) []porcupine.Operation {
	last := int64(0)
	clients := map[string]int{}
	for _, op := range ops {
		last = max(last, op.Call, op.Return)
		if _, known := clients[op.Client]; !known {
			clients[op.Client] = len(clients)
		}
	}
	if last > math.MaxInt64-3 {
		last = math.MaxInt64 - 3
	}
	history := make([]porcupine.Operation, 0, len(ops)+1)
	for _, op := range ops {
		if op.Kind == "read" {
			continue
		}
		back := op.Return
		if op.writes() && !op.acknowledged() {
			back = last + 3
		}
		history = append(history, porcupine.Operation{ClientId: clients[op.Client], Input: op, Call: op.Call, Return: back})
	}
	return append(history, porcupine.Operation{ClientId: len(clients), Input: closing, Call: last + 1, Return: last + 2})
}

// verdict is what was found out about one document.
type verdict struct {
	result porcupine.CheckResult
	order  []*Op // the operations that took effect, in an order that fits
	info   porcupine.LinearizationInfo
}

func checkDocument(ops []*Op, timeout time.Duration) verdict {
	law := model(ops[0].Level)
	result, info := porcupine.CheckOperationsVerbose(law, operations(ops), timeout)
	found := verdict{result: result, info: info}
	if result != porcupine.Ok {
		return found
	}
	state := law.Init()
	for _, one := range info.PartialLinearizationsOperations()[0][0] {
		op := one.Input.(*Op)
		_, next := law.Step(state, op, nil)
		if op.writes() && op != closing && next != state {
			op.effective = true
			found.order = append(found.order, op)
		}
		state = next
	}
	return found
}

// reads counts the reads of a document that do not fit the order of its writes: stale ones show less than what had been
// acknowledged, or shown by another read, before they were asked; dirty ones show a value that never took effect.
func reads(ops, order []*Op) (all, stale, dirty int, err error) {
	place := map[string]int{"": 0}
	calls := []int64{0}
	for _, op := range order {
		place[op.Value] = len(calls)
		calls = append(calls, op.Call)
	}
	type moment struct {
		at    int64
		place int
	}
	var known []moment // when it was known that the document had come so far
	var asked []*Op
	for _, op := range ops {
		at, clean := place[op.Value]
		switch {
		case op.Kind == "read" && op.Result != "unknown":
			all++
			if !clean {
				dirty++
				continue
			}
			if op.Return < calls[at] {
				return 0, 0, 0, fmt.Errorf("%s shows a value before it was written", op.describe())
			}
			asked = append(asked, op)
			known = append(known, moment{op.Return, at})
		case op.effective && op.acknowledged():
			known = append(known, moment{op.Return, at})
		}
	}
	sort.Slice(known, func(i, j int) bool { return known[i].at < known[j].at })
	sort.Slice(asked, func(i, j int) bool { return asked[i].Call < asked[j].Call })
	least, next := 0, 0
	for _, op := range asked {
		for ; next < len(known) && known[next].at < op.Call; next++ {
			least = max(least, known[next].place)
		}
		if place[op.Value] < least {
			stale++
		}
	}
	return all, stale, dirty, nil
}
