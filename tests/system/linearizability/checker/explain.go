package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

func (op *Op) describe() string {
	if op == closing {
		return "the end"
	}
	said := fmt.Sprintf("%s: %s", op.Client, op.Kind)
	if op.Level == writerLevel {
		for _, word := range []string{op.Claim, op.Outcome} {
			if word != "" {
				said += " " + word
			}
		}
		if op.Attempt != 0 {
			said += fmt.Sprintf(" (attempt %d)", op.Attempt)
		}
		said += " → " + op.Result
		if op.State != "" {
			said += fmt.Sprintf(" %s rev %d", op.State, op.Rev)
		}
		if op.Holder != "" {
			said += " by " + op.Holder
		}
		return said
	}
	if op.Expected != nil {
		said += fmt.Sprintf(" over %s at %d/%d", op.Expected.Value, op.Expected.Number, op.Expected.Term)
	}
	if op.writes() {
		said += " of " + op.Value
	}
	said += " → " + op.Result
	if op.Result == "found" {
		said += " " + op.Value
	}
	if op.Version != (Version{}) {
		said += fmt.Sprintf(" at %d/%d", op.Version.Number, op.Version.Term)
	}
	return said
}

// explain names what is wrong with a document in plain words, as far as it has a name. Porcupine has judged by then:
// this only helps to read its verdict.
func explain(ops []*Op, info porcupine.LinearizationInfo) []string {
	var said []string
	if ops[0].Level == storeLevel {
		said = append(said, doubled(ops, "two acknowledged writes over one version", func(op *Op) string {
			if op.Expected == nil {
				return "nothing"
			}
			return fmt.Sprintf("%d/%d", op.Expected.Number, op.Expected.Term)
		})...)
		said = append(said, doubled(ops, "two acknowledged writes got one version", func(op *Op) string {
			return fmt.Sprintf("%d/%d", op.Version.Number, op.Version.Term)
		})...)
		said = append(said, lost(ops)...)
	} else {
		said = append(said, doubled(ops, "two settled claims for one attempt", func(op *Op) string {
			if op.Kind != "claim" {
				return ""
			}
			return fmt.Sprint(op.Attempt)
		})...)
	}
	return append(said, stuck(ops, info))
}

// stuck tells how far an order could be found.
func stuck(ops []*Op, info porcupine.LinearizationInfo) string {
	placed := map[*Op]bool{}
	last := "nothing"
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(placed) {
			placed = map[*Op]bool{}
			for _, one := range order {
				placed[one.Input.(*Op)] = true
				last = one.Input.(*Op).describe()
			}
		}
	}
	for _, op := range ops {
		if !placed[op] && (op.acknowledged() || op.Kind == "final") {
			return fmt.Sprintf("no order fits: it comes as far as (%s), and (%s) has no place", last, op.describe())
		}
	}
	return "no order fits"
}

// doubled tells of acknowledged writes that share what only one of them can have.
func doubled(ops []*Op, what string, key func(*Op) string) []string {
	groups := map[string][]*Op{}
	for _, op := range ops {
		if op.writes() && op.acknowledged() && key(op) != "" {
			groups[key(op)] = append(groups[key(op)], op)
		}
	}
	var said []string
	for name, group := range groups {
		if len(group) > 1 {
			words := make([]string, len(group))
			for i, op := range group {
				words[i] = op.describe()
			}
			said = append(said, fmt.Sprintf("%s (%s): %s", what, name, strings.Join(words, "; ")))
		}
	}
	sort.Strings(said)
	return said
}

// lost tells of acknowledged writes over which nobody wrote and which are not what stands at the end.
func lost(ops []*Op) []string {
	standing := map[string]bool{}
	final := false
	for _, op := range ops {
		if op.Expected != nil {
			standing[op.Expected.Value] = true
		}
		if op.Kind == "final" {
			final = true
			standing[op.Value] = true
		}
	}
	var said []string
	for _, op := range ops {
		if final && op.writes() && op.acknowledged() && !standing[op.Value] {
			said = append(said, "an acknowledged write is lost: "+op.describe())
		}
	}
	return said
}
