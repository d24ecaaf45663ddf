// Command checker judges a recorded history of version-checked writes.
//
// It reads JSON lines, one operation each, takes the documents apart and asks Porcupine of each whether the acknowledged
// writes can be put in one order that respects time. It prints what is wrong, and OK or VIOLATION or UNDECIDED last.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	exitOK = iota
	exitViolation
	exitUsage
	exitUndecided
)

// Summary is the verdict in numbers.
type Summary struct {
	Verdict             string   `json:"verdict"`
	Operations          int      `json:"operations"`
	Documents           int      `json:"documents"`
	Acknowledged        int      `json:"acknowledged"`
	Conflicted          int      `json:"conflicted"`
	ConflictedEffective int      `json:"conflicted_effective"`
	Unknown             int      `json:"unknown"`
	UnknownEffective    int      `json:"unknown_effective"`
	Reads               int      `json:"reads"`
	StaleReads          int      `json:"stale_reads"`
	DirtyReads          int      `json:"dirty_reads"`
	Violations          []string `json:"violations"`
	Undecided           []string `json:"undecided"`
	Seconds             float64  `json:"seconds"`
}

func main() { os.Exit(run()) }

func run() int {
	timeout := flag.Duration("timeout", time.Minute, "how long one document may take; after it the verdict is UNDECIDED")
	pictures := flag.String("pictures", "", "folder for Porcupine's pictures of the documents that are not linearizable")
	summaryPath := flag.String("json", "", "file for the verdict in numbers")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: checker [-timeout 1m] [-pictures FOLDER] [-json FILE] HISTORY.jsonl")
		return exitUsage
	}
	file, err := os.Open(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "checker:", err)
		return exitUsage
	}
	defer file.Close()
	documents, err := readHistory(file)
	if err != nil {
		fmt.Fprintf(os.Stderr, "checker: %s: %v\n", flag.Arg(0), err)
		return exitUsage
	}
	summary := judge(documents, *timeout, *pictures)
	if *summaryPath != "" {
		text, err := json.MarshalIndent(summary, "", "  ")
		if err == nil {
			err = os.WriteFile(*summaryPath, append(text, '\n'), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "checker:", err)
			return exitUsage
		}
	}
	for _, line := range append(summary.Violations, summary.Undecided...) {
		fmt.Println(line)
	}
	fmt.Printf("%s: %d operations on %d documents, %d acknowledged writes\n",
		summary.Verdict, summary.Operations, summary.Documents, summary.Acknowledged)
	switch summary.Verdict {
	case "OK":
		return exitOK
	case "VIOLATION":
		return exitViolation
	}
	return exitUndecided
}

// judge checks every document, as many at once as there are processors.
func judge(documents map[string][]*Op, timeout time.Duration, pictures string) Summary {
	began := time.Now()
	summary := Summary{Documents: len(documents), Violations: []string{}, Undecided: []string{}}
	names := make([]string, 0, len(documents))
	for name := range documents {
		names = append(names, name)
	}
	sort.Strings(names)
	var lock sync.Mutex
	var all sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, name := range names {
		ops := documents[name]
		all.Add(1)
		places <- struct{}{}
		go func(name string) {
			defer func() { <-places; all.Done() }()
			found := checkDocument(ops, timeout)
			lock.Lock()
			defer lock.Unlock()
			summary.add(name, ops, found, pictures)
		}(name)
	}
	all.Wait()
	// By document; what was said of one stays together, the plainest first.
	sort.SliceStable(summary.Violations, func(i, j int) bool {
		one, _, _ := strings.Cut(summary.Violations[i], ":")
		other, _, _ := strings.Cut(summary.Violations[j], ":")
		return one < other
	})
	switch {
	case len(summary.Violations) > 0:
		summary.Verdict = "VIOLATION"
	case len(summary.Undecided) > 0:
		summary.Verdict = "UNDECIDED"
	default:
		summary.Verdict = "OK"
	}
	summary.Seconds = time.Since(began).Seconds()
	return summary
}

func (s *Summary) add(name string, ops []*Op, found verdict, pictures string) {
	s.Operations += len(ops)
	switch found.result {
	case porcupine.Illegal:
		for _, line := range explain(ops, found.info) {
			s.Violations = append(s.Violations, fmt.Sprintf("%s: violation: %s", name, line))
		}
		if pictures != "" {
			path := filepath.Join(pictures, name+".html")
			if err := porcupine.VisualizePath(model(ops[0].Level), found.info, path); err != nil {
				fmt.Fprintln(os.Stderr, "checker:", err)
			}
		}
	case porcupine.Unknown:
		s.Undecided = append(s.Undecided, name+": not decided in time")
	default:
		if ops[0].Level == storeLevel {
			all, stale, dirty, err := reads(ops, found.order)
			if err != nil {
				s.Violations = append(s.Violations, fmt.Sprintf("%s: violation: %v", name, err))
			}
			s.Reads, s.StaleReads, s.DirtyReads = s.Reads+all, s.StaleReads+stale, s.DirtyReads+dirty
		}
	}
	for _, op := range ops {
		if !op.writes() {
			continue
		}
		switch {
		case op.acknowledged():
			s.Acknowledged++
		case op.Result == "conflicted" || op.Result == "refused" || op.Result == "missing":
			s.Conflicted++
			if op.effective {
				s.ConflictedEffective++
			}
		default:
			s.Unknown++
			if op.effective {
				s.UnknownEffective++
			}
		}
	}
}
