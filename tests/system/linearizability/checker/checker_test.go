package main

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func seen(number, term int64, value string) *Seen { return &Seen{Version{number, term}, value} }

// write is a create or a cas from call to return. The number of the version that it got is given; 0 means that it was
// not acknowledged.
func write(call, back int64, expected *Seen, value string, number int64) *Op {
	op := &Op{Level: storeLevel, Client: "c" + value, Document: "d", Kind: "cas", Call: call, Return: back, Expected: expected, Value: value}
	if expected == nil {
		op.Kind = "create"
	}
	op.Result = "unknown"
	if number != 0 {
		op.Result, op.Version = "written", Version{number, 1}
	}
	return op
}

func shown(kind string, call, back int64, value string, number int64) *Op {
	op := &Op{Level: storeLevel, Client: "reader", Document: "d", Kind: kind, Call: call, Return: back, Value: value, Version: Version{number, 1}}
	op.Result = "found"
	if value == "" {
		op.Result = "missing"
	}
	return op
}

func verdictOf(ops ...*Op) porcupine.CheckResult { return checkDocument(ops, time.Minute).result }

func TestRegister(t *testing.T) {
	create := write(1, 2, nil, "a", 1)
	cases := []struct {
		name string
		ops  []*Op
		want porcupine.CheckResult
	}{
		{"one after the other", []*Op{create, write(3, 4, seen(1, 1, "a"), "b", 2), shown("final", 9, 10, "b", 2)}, porcupine.Ok},
		{"double success on one version", []*Op{create, write(3, 5, seen(1, 1, "a"), "b", 2), write(4, 6, seen(1, 1, "a"), "c", 3)}, porcupine.Illegal},
		{"double create", []*Op{create, write(1, 3, nil, "b", 2)}, porcupine.Illegal},
		{"lost at the end", []*Op{create, write(3, 4, seen(1, 1, "a"), "b", 2), shown("final", 9, 10, "a", 1)}, porcupine.Illegal},
		{"all lost at the end", []*Op{create, shown("final", 9, 10, "", 0)}, porcupine.Illegal},
		{"another version at the end", []*Op{create, shown("final", 9, 10, "a", 2)}, porcupine.Illegal},
		{"written before it was called", []*Op{write(5, 6, nil, "a", 1), write(1, 2, seen(1, 1, "a"), "b", 2)}, porcupine.Illegal},
		{"version goes back", []*Op{create, write(3, 4, seen(1, 1, "a"), "b", 1)}, porcupine.Illegal},
		{"one version, two values", []*Op{create, write(3, 4, seen(1, 1, "a"), "b", 2), write(5, 6, seen(2, 1, "x"), "c", 3)}, porcupine.Illegal},
		{"unknown that took effect", []*Op{create, write(3, 4, seen(1, 1, "a"), "b", 0), write(5, 6, seen(2, 1, "b"), "c", 3)}, porcupine.Ok},
		{"unknown that took effect late", []*Op{create, write(3, 4, seen(1, 1, "a"), "b", 0), shown("read", 5, 6, "a", 1), shown("final", 9, 10, "b", 2)}, porcupine.Ok},
		{"unknown that did nothing", []*Op{create, write(3, 4, seen(1, 1, "a"), "b", 0), write(5, 6, seen(1, 1, "a"), "c", 2), shown("final", 9, 10, "c", 2)}, porcupine.Ok},
		{"unknown and another on one version", []*Op{create, write(3, 4, seen(1, 1, "a"), "b", 0), write(3, 4, seen(1, 1, "a"), "c", 2), write(5, 6, seen(2, 1, "b"), "d", 3)}, porcupine.Illegal},
		{"unknown before its call", []*Op{create, write(7, 8, seen(1, 1, "a"), "b", 0), write(5, 6, seen(2, 1, "b"), "c", 3)}, porcupine.Illegal},
		{"reads are hints", []*Op{create, write(3, 4, seen(1, 1, "a"), "b", 2), shown("read", 5, 6, "a", 1), shown("read", 5, 6, "zzz", 9)}, porcupine.Ok},
	}
	for _, one := range cases {
		if got := verdictOf(one.ops...); got != one.want {
			t.Errorf("%s: %s", one.name, got)
		}
	}
}

func TestTheFirstNumberIsZero(t *testing.T) {
	create := write(1, 2, nil, "a", 1)
	create.Version = Version{0, 1}
	if got := verdictOf(create, write(3, 4, seen(0, 1, "a"), "b", 1)); got != porcupine.Ok {
		t.Error(got)
	}
	create.Result = "unknown"
	if got := verdictOf(create, write(3, 4, seen(0, 1, "a"), "b", 1)); got != porcupine.Ok {
		t.Error(got)
	}
}

func TestConflictsAreOpen(t *testing.T) {
	refused := write(3, 4, seen(1, 1, "a"), "b", 0)
	refused.Result = "conflicted"
	found := checkDocument([]*Op{write(1, 2, nil, "a", 1), refused, write(5, 6, seen(2, 1, "b"), "c", 3)}, time.Minute)
	if found.result != porcupine.Ok || !refused.effective {
		t.Errorf("a conflict may have taken effect: %s, %v", found.result, refused.effective)
	}
}

func claimed(kind string, call, back int64, claim string, attempt, rev int64) *Op {
	op := &Op{Level: writerLevel, Client: claim, Document: "j", Kind: kind, Call: call, Return: back, Claim: claim, Attempt: attempt, Rev: rev}
	op.Outcome, op.Result = "failure", "settled"
	if rev == 0 {
		op.Result = "unsettled"
	}
	return op
}

func ended(state string, attempt, rev int64, holder string) *Op {
	return &Op{Level: writerLevel, Client: "closing", Document: "j", Kind: "final", Result: "found", Call: 100, Return: 101,
		State: state, Attempt: attempt, Rev: rev, Holder: holder}
}

func TestJob(t *testing.T) {
	create := &Op{Level: writerLevel, Client: "c", Document: "j", Kind: "create", Result: "written", Call: 1, Return: 2}
	given := &Op{Level: writerLevel, Client: "c", Document: "j", Kind: "create", Result: "written", Call: 1, Return: 2, Claim: "A"}
	perhaps := &Op{Level: writerLevel, Client: "c", Document: "j", Kind: "create", Result: "unknown", Call: 1, Return: 2, Claim: "A"}
	ok := claimed("end", 5, 6, "A", 1, 3)
	ok.Outcome = "ok"
	lateOK := claimed("end", 7, 8, "A", 1, 4)
	lateOK.Outcome = "ok"
	cases := []struct {
		name string
		ops  []*Op
		want porcupine.CheckResult
	}{
		{"claim and end", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), ok, ended("completed", 1, 3, "")}, porcupine.Ok},
		{"created claimed, and end", []*Op{given, ok, ended("completed", 1, 3, "")}, porcupine.Ok},
		{"claim of a job created claimed", []*Op{given, claimed("claim", 3, 4, "B", 1, 2)}, porcupine.Illegal},
		{"first claim lost", []*Op{given, ended("available", 0, 1, "")}, porcupine.Illegal},
		{"first claim lost, and another for the same attempt", []*Op{given, create}, porcupine.Illegal},
		{"unknown first claim, released by another", []*Op{perhaps, claimed("release", 5, 6, "A", 1, 3), claimed("claim", 7, 8, "B", 2, 4)}, porcupine.Ok},
		{"unknown first claim that did nothing", []*Op{perhaps, create, claimed("claim", 3, 4, "B", 1, 2)}, porcupine.Ok},
		{"two claims for one attempt", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), claimed("claim", 3, 4, "B", 1, 2)}, porcupine.Illegal},
		{"claim of a held job", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), claimed("claim", 5, 6, "B", 2, 3)}, porcupine.Illegal},
		{"claim after a fault", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), claimed("end", 5, 6, "A", 1, 4), claimed("claim", 7, 8, "B", 2, 5), ended("running", 2, 5, "B")}, porcupine.Ok},
		{"claim after an unknown end", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), claimed("end", 5, 6, "A", 1, 0), claimed("claim", 7, 8, "B", 2, 5)}, porcupine.Ok},
		{"settled claim lost", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), ended("available", 0, 1, "")}, porcupine.Illegal},
		{"settled end lost", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), claimed("end", 5, 6, "A", 1, 4), ended("running", 1, 2, "A")}, porcupine.Illegal},
		{"unknown claim, released by another", []*Op{create, claimed("claim", 3, 4, "A", 1, 0), claimed("release", 5, 6, "A", 1, 3), claimed("claim", 7, 8, "B", 2, 4)}, porcupine.Ok},
		{"released twice", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), claimed("release", 5, 6, "A", 1, 3), claimed("release", 5, 7, "A", 1, 3)}, porcupine.Ok},
		{"late end adopted", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), claimed("release", 5, 6, "A", 1, 3), lateOK, ended("completed", 1, 4, "")}, porcupine.Ok},
		{"late end under a newer claim", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), claimed("release", 5, 6, "A", 1, 3), claimed("claim", 6, 7, "B", 2, 4), lateOK}, porcupine.Illegal},
		{"end of a claim that never was", []*Op{create, claimed("claim", 3, 4, "A", 1, 2), claimed("end", 5, 6, "X", 1, 4)}, porcupine.Illegal},
	}
	for _, one := range cases {
		if got := verdictOf(one.ops...); got != one.want {
			t.Errorf("%s: %s", one.name, got)
		}
	}
}

func TestReads(t *testing.T) {
	ops := []*Op{
		shown("read", 1, 20, "", 0), // overlaps the create
		write(1, 2, nil, "a", 1),    //
		shown("read", 3, 4, "", 0),  // stale: the create was acknowledged
		write(3, 6, seen(1, 1, "a"), "b", 2),
		shown("read", 3, 4, "b", 2),  // ahead of the acknowledgement: allowed
		shown("read", 5, 6, "a", 1),  // stale: another read showed more
		shown("read", 3, 8, "a", 1),  // overlaps
		shown("read", 7, 8, "x", 7),  // dirty
		shown("read", 7, 8, "b", 2),  //
		shown("read", 9, 10, "a", 1), // stale
	}
	found := checkDocument(ops, time.Minute)
	all, stale, dirty, err := reads(ops, found.order)
	if all != 8 || stale != 3 || dirty != 1 || err != nil {
		t.Errorf("%d reads, %d stale, %d dirty, %v", all, stale, dirty, err)
	}
	early := append(ops, shown("read", 1, 2, "b", 2))
	if _, _, _, err := reads(early, found.order); err == nil {
		t.Error("a read from the future went unseen")
	}
}

// TestAgainstEveryOrder compares the verdict with that of trying out every choice and every order by hand.
func TestAgainstEveryOrder(t *testing.T) {
	dice := rand.New(rand.NewSource(1))
	counts := map[bool]int{}
	for round := 0; round < 4000; round++ {
		ops := anyHistory(dice)
		want := someOrderFits(ops, nothing, nil)
		counts[want]++
		if got := verdictOf(ops...) == porcupine.Ok; got != want {
			words := make([]string, len(ops))
			for i, op := range ops {
				words[i] = fmt.Sprintf("[%d, %d] %s", op.Call, op.Return, op.describe())
			}
			t.Fatalf("linearizable: checker %v, by hand %v\n%s", got, want, strings.Join(words, "\n"))
		}
	}
	if counts[true] < 400 || counts[false] < 400 {
		t.Errorf("the histories are one-sided: %v", counts)
	}
}

// anyHistory is a true run of a few writes, some of them unclear, in which something may then be broken.
func anyHistory(dice *rand.Rand) []*Op {
	now := nothing
	ops := []*Op{}
	last := int64(0)
	for i := int64(1); i <= 6; i++ {
		var expected *Seen
		if now.Value != "" {
			expected = &Seen{now.Version, now.Value}
			if dice.Intn(4) == 0 {
				expected = &Seen{Version{now.Version.Number + 1, 1}, now.Value}
			}
		}
		applied := expected == nil || expected.Version == now.Version
		number := i
		if !applied || dice.Intn(3) == 0 {
			number = 0
		}
		call := 10*i - int64(dice.Intn(25))
		if call < 1 {
			call = 1
		}
		back := max(10*i+int64(dice.Intn(25)), call)
		ops = append(ops, write(call, back, expected, string(rune('a'+i)), number))
		if applied && (number != 0 || dice.Intn(2) == 0) {
			now = register{Value: string(rune('a' + i)), Version: Version{i, 1}, Pinned: true}
		}
		last = max(last, back)
	}
	if now.Value != "" && dice.Intn(2) == 0 {
		ops = append(ops, shown("final", last+1, last+2, now.Value, now.Version.Number))
	}
	if dice.Intn(3) != 0 {
		broken := ops[dice.Intn(len(ops))]
		other := ops[dice.Intn(len(ops))]
		switch dice.Intn(4) {
		case 0:
			if broken.Expected != nil && other.Expected != nil {
				broken.Expected = other.Expected
			}
		case 1:
			broken.Version.Number += int64(dice.Intn(3) - 1)
		case 2:
			if broken.Result == "unknown" {
				broken.Result, broken.Version = "written", Version{7, 1}
			}
		case 3:
			broken.Call, broken.Return = other.Call, max(other.Call, other.Return)
		}
	}
	return ops
}

// someOrderFits tries every next operation, and leaving out what was not acknowledged.
func someOrderFits(ops []*Op, now register, done map[*Op]bool) bool {
	left := []*Op{}
	for _, op := range ops {
		if !done[op] && (op.acknowledged() || !op.writes()) {
			left = append(left, op)
		}
	}
	if len(left) == 0 {
		return true
	}
	for _, op := range ops {
		if done[op] {
			continue
		}
		due := true
		for _, other := range left {
			due = due && (other == op || other.Return >= op.Call)
		}
		ok, next := now.step(op)
		if !due || !ok {
			continue
		}
		more := map[*Op]bool{op: true}
		for one := range done {
			more[one] = true
		}
		if someOrderFits(ops, next, more) {
			return true
		}
	}
	return false
}

func TestBadHistoriesAreRefused(t *testing.T) {
	good := `{"level":"store","client":"c","document":"d","kind":"create","call":1,"return":2,"result":"written","value":"a","version":{"number":1,"term":1}}`
	if _, err := readHistory(strings.NewReader(good)); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		good + "\n" + good,
		strings.Replace(good, "create", "cas", 1),
		strings.Replace(good, "written", "perhaps", 1),
		strings.Replace(good, `"return":2`, `"return":0`, 1),
		strings.Replace(good, `"call":1`, `"call":3`, 1),
		good[:40],
	} {
		if _, err := readHistory(strings.NewReader(bad)); err == nil {
			t.Errorf("taken: %s", bad)
		}
	}
}
