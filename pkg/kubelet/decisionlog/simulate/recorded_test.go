package simulate

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// recordedRun is what a run of a node test did, of which testdata has the decision log.
type recordedRun struct {
	// starts is how often the agent was started.
	starts int
	// evicted are the pods that were evicted, with the cause and the signal; those in dry run have a mark.
	evicted []string
}

// runs are the recorded runs, by the name of their file; docs/decisions.md says of which tests.
var runs = map[string]recordedRun{
	"memory":                 {2, []string{"polite hard allocatableMemory.available"}},
	"restart-under-pressure": {4, []string{"hog hard allocatableMemory.available"}},
	"fence": {5, []string{
		"hog-9 hard allocatableMemory.available", "hog-15 hard allocatableMemory.available",
	}},
	"pids":                 {2, []string{"bomb hard pid.available"}},
	"disk":                 {4, []string{"writer hard imagefs.available"}},
	"dry-run":              {2, []string{"hog hard allocatableMemory.available"}},
	"memory-growth-plugin": {2, []string{"leak plugin"}},
	"memory-again":         {2, []string{"polite hard allocatableMemory.available"}},
	"memory-800Mi":         {2, []string{"polite hard allocatableMemory.available"}},
	"memory-200Mi":         {2, []string{"polite hard allocatableMemory.available"}},
	"pids-again":           {2, []string{"bomb hard pid.available"}},
	"pids-300-more":        {2, []string{"bomb hard pid.available"}},
	"plugin-budgets": {2, []string{
		"guarded-3 plugin", "guarded-1 plugin", "guarded-2 plugin", "guarded-5 plugin", "guarded-7 plugin",
		"guarded-1 plugin", "guarded-6 plugin", "guarded-3 plugin", "guarded-8 plugin", "guarded-2 plugin",
		"guarded-9 plugin", "guarded-0 plugin", "guarded-4 plugin", "free plugin",
	}},
}

// readRun decodes a recorded run.
func readRun(t *testing.T, name string) (lines []trace.Line) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var decoder trace.Decoder
	s := bufio.NewScanner(z)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		l, err := decoder.Decode(s.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines = append(lines, l)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// A plan with the settings of the recording gives exactly the decisions of thirteen real runs.
func TestRecordedRunsAreMadeAgain(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl.gz")
	if err != nil || len(files) != len(runs) || len(files) != 13 {
		t.Errorf("%d runs are recorded, %d are described: %v", len(files), len(runs), err)
	}
	same := func(r *policy.Rules, _ snapshot.Layout) (*policy.Rules, error) {
		again := *r
		return &again, nil
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl.gz")
		t.Run(name, func(t *testing.T) {
			lines := readRun(t, file)
			starts, decisions, last := 0, 0, uint64(0)
			for i := range lines {
				if d := lines[i].Trace.Decision; d != nil {
					if decisions++; d.Number <= last {
						starts++
					}
					last = d.Number
				}
			}
			for _, settings := range []Settings{{}, {Rules: same}} {
				r := run(t, lines, settings)
				if r.Decisions != decisions || r.Skipped > 0 || len(r.Different) > 0 || r.Changed {
					t.Errorf("%d of %d decisions, %d skipped, different %v, changed %t", r.Decisions, decisions, r.Skipped,
						r.Different, r.Changed)
				}
				var evicted []string
				for _, p := range r.Pairs() {
					if p.Outcome() != "Same" {
						t.Errorf("%+v: %s", p, p.Outcome())
						continue
					}
					evicted = append(evicted, describe(p.Planned))
				}
				if want := runs[name]; starts+1 != want.starts || strings.Join(evicted, "\n") != strings.Join(want.evicted, "\n") {
					text, _ := json.Marshal(evicted)
					t.Errorf("%d starts, %s", starts+1, text)
				}
			}
		})
	}
}

// A message is as it was recorded, but for what a pod's only container uses: since these runs were recorded, that is
// what the pod's cgroup uses, with the sandbox, and it is known while the container has no stats yet.
func TestMessagesOfRecordedRuns(t *testing.T) {
	usage := regexp.MustCompile(`(Container \S+ was using) \S+(, request is \S+, has larger consumption of memory\. )`)
	for name := range runs {
		var state policy.State
		for _, l := range readRun(t, "testdata/"+name+".jsonl.gz") {
			d, in := l.Trace.Decision, l.Input
			if d == nil || in == nil {
				continue
			}
			if in.State != nil {
				state = *in.State
			}
			made, next := policy.Decide(in.Snapshot, in.Rules, state)
			again := trace.Describe(&trace.Round{Snapshot: in.Snapshot, Rules: in.Rules, State: &state, Decision: &made})
			state = next
			if len(again.Victims) != len(d.Victims) {
				t.Fatalf("%s, decision %d: %d victims, recorded were %d", name, d.Number, len(again.Victims), len(d.Victims))
			}
			for i := range d.Victims {
				recorded, message := d.Victims[i].Message, again.Victims[i].Message
				shape := "$1 …$2"
				if !usage.MatchString(recorded) {
					shape = ""
				}
				if usage.ReplaceAllString(recorded, shape) != usage.ReplaceAllString(message, shape) {
					t.Errorf("%s, decision %d: %q was recorded, made again it is %q", name, d.Number, recorded, message)
				}
			}
		}
	}
}

func describe(e *Eviction) string {
	text := strings.TrimSpace(e.Name + " " + e.Cause + " " + e.Signal)
	if e.DryRun {
		text += " dry run"
	}
	return text
}

// hard returns the recorded rules with another amount of the hard thresholds of signals.
func hard(amount string, signals ...snapshot.Signal) func(*policy.Rules, snapshot.Layout) (*policy.Rules, error) {
	return func(recorded *policy.Rules, _ snapshot.Layout) (*policy.Rules, error) {
		r := *recorded
		r.Thresholds = slices.Clone(r.Thresholds)
		for i := range r.Thresholds {
			if t := &r.Thresholds[i]; !t.Soft && slices.Contains(signals, t.Signal) {
				t.Value = evictionapi.ThresholdValue{Quantity: new(resource.MustParse(amount))}
			}
		}
		return &r, nil
	}
}

// A plan with a changed threshold chooses the victims of a real run with that threshold. docs/decisions.md explains the
// differences in time.
func TestPlansBesideRealRuns(t *testing.T) {
	memory := []snapshot.Signal{snapshot.MemoryAvailable, snapshot.AllocatableMemoryAvailable}
	for _, tc := range []struct {
		recorded, real, amount string
		signals                []snapshot.Signal
		grow                   bool
		want                   string
	}{
		{"memory-again", "memory-800Mi", "800Mi", memory, false, "Earlier"},
		{"memory-again", "memory-200Mi", "200Mi", memory, true, "Later"},
		{"pids-again", "pids-300-more", "31692", []snapshot.Signal{snapshot.PIDAvailable}, false, "Same"},
	} {
		plan := run(t, readRun(t, "testdata/"+tc.recorded+".jsonl.gz"), Settings{
			Rules: hard(tc.amount, tc.signals...), GrowSpared: tc.grow, Signal: tc.signals[len(tc.signals)-1],
		})
		real := run(t, readRun(t, "testdata/"+tc.real+".jsonl.gz"), Settings{})
		var planned, evicted []string
		for _, p := range plan.Pairs() {
			planned = append(planned, p.Planned.Name)
			t.Logf("%s of %s: recorded %+v, planned %+v", tc.amount, tc.recorded, p.Recorded, p.Planned)
			if p.Outcome() != tc.want {
				t.Errorf("%s of %s: %s", tc.amount, tc.recorded, p.Outcome())
			}
		}
		for i := range real.Recorded {
			evicted = append(evicted, real.Recorded[i].Name)
		}
		if !plan.Changed || len(planned) == 0 || !slices.Equal(planned, evicted) {
			t.Errorf("%s of %s: planned %q, evicted in reality %q", tc.amount, tc.recorded, planned, evicted)
		}
	}
}
