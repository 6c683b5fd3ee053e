package decisionlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"math/rand"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// A quiet node has a record in a minute; a change is recorded at once.
func TestQuietNodesHaveAHeartbeat(t *testing.T) {
	w := newWorld(t, 3, Config{})
	for range 60 {
		w.round(10 * time.Second)
	}
	list, err := listed(w.log, &Query{})
	if err != nil || len(list.Items) != 10 {
		t.Fatalf("%d records in ten minutes: %v", len(list.Items), err)
	}
	for i, d := range list.Items[1:] {
		if !d.Heartbeat || d.Number != uint64(1+6*(i+1)) {
			t.Errorf("record %d is decision %d, heartbeat %t", i+1, d.Number, d.Heartbeat)
		}
	}
	w.available -= gi
	w.round(10 * time.Second)
	if list, _ = listed(w.log, &Query{Limit: 1}); list.Items[0].Heartbeat || list.Omitted != 10 {
		t.Errorf("%+v", list.Items[0])
	}
}

func TestADecisionIsExplained(t *testing.T) {
	w := newWorld(t, 5, Config{})
	w.round(0)
	r := w.evict()
	d, ok, err := w.log.Decision(r.Decision.Number)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	victim := r.Decision.Victims[0].Pod
	if len(d.Victims) != 1 || d.Victims[0].UID != victim.UID || d.Victims[0].Message != r.Decision.Victims[0].Message {
		t.Errorf("victims %+v", d.Victims)
	}
	if len(d.Rankings) != 1 || len(d.Rankings[0].Candidates) != 5 || d.Rankings[0].Candidates[0].UID != victim.UID ||
		*d.Rankings[0].Candidates[0].Usage != 104*mi || d.Rankings[0].Candidates[0].Reason != "Usage" {
		t.Errorf("rankings %+v", d.Rankings)
	}
	if len(d.Thresholds) != 1 || !d.Thresholds[0].Met || *d.Thresholds[0].Amount != gi || d.Thresholds[0].Value != "1Gi" {
		t.Errorf("thresholds %+v", d.Thresholds)
	}
	var kinds []string
	for _, o := range d.Outcomes {
		kinds = append(kinds, o.Kind)
	}
	if !slices.Equal(kinds, []string{"KillAccepted", "PodStopped", "PodReleased"}) {
		t.Errorf("outcomes %q", kinds)
	}
	if !d.Outcomes[0].Time.Equal(r.Decision.WallTime) {
		t.Errorf("outcome at %s, decision at %s", d.Outcomes[0].Time, r.Decision.WallTime)
	}
	if _, ok, _ := w.log.Decision(9999); ok {
		t.Error("a decision that was not made is found")
	}
}

func TestRecordsAreFoundByPod(t *testing.T) {
	w := newWorld(t, 5, Config{})
	w.round(0)
	r := w.evict()
	victim := r.Decision.Victims[0].Pod
	w.log.Admission(podObject(77), Rejected, "Evicted", "too full")
	evicted := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: victim.Namespace, Name: victim.Name, UID: victim.UID}}
	w.log.Preemption(podObject(78), []*v1.Pod{evicted}, []*v1.Pod{podObject(79)}, nil)
	w.log.Preemption(podObject(78), nil, nil, errors.New("none"))
	for _, tc := range []struct {
		query                              PodQuery
		decisions, admissions, preemptions int
	}{
		{PodQuery{UID: victim.UID}, 1, 0, 1},
		{PodQuery{Namespace: "shop", Name: victim.Name}, 1, 0, 1},
		{PodQuery{Namespace: "shop", Name: "pod-079"}, 0, 0, 1},
		{PodQuery{UID: "uid-078"}, 0, 0, 2},
		{PodQuery{Namespace: "other", Name: victim.Name}, 0, 0, 0},
		{PodQuery{UID: "pod-077", Name: "pod-077"}, 0, 1, 0},
		{PodQuery{UID: "nothing"}, 0, 0, 0},
	} {
		list, err := listed(w.log, &Query{Pod: &tc.query})
		evictions := 0
		for _, d := range list.Items {
			if len(d.Victims) > 0 {
				evictions++
			}
		}
		if err != nil || evictions != tc.decisions || len(list.Admissions) != tc.admissions ||
			len(list.Preemptions) != tc.preemptions {
			t.Errorf("%+v: %d evictions, %d admissions, %d preemptions", tc.query, evictions, len(list.Admissions),
				len(list.Preemptions))
		}
	}
	if list, _ := listed(w.log, &Query{Since: r.Decision.WallTime.Add(time.Second)}); len(list.Items) != 0 {
		t.Errorf("%d decisions after the last one", len(list.Items))
	}
}

// A decision that withdraws an eviction is about that pod, although the pod is neither a victim nor in flight any more.
func TestAWithdrawnEvictionIsFoundByPod(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.round(0)
	r := w.round(time.Minute)
	r.Decision.Number, r.Decision.Withdrawn = r.Decision.Number+1, []types.UID{w.facts[1].UID}
	w.log.Round(t.Context(), r)
	list, err := listed(w.log, &Query{Pod: &PodQuery{UID: w.facts[1].UID}})
	if err != nil || len(list.Items) != 1 || len(list.Items[0].Withdrawn) != 1 {
		t.Errorf("%d decisions: %v", len(list.Items), err)
	}
}

// The records stay within the bound, and what is counted is what is there.
func TestTheRingIsBounded(t *testing.T) {
	const limit = 256 << 10
	w := newWorld(t, 30, Config{LimitBytes: limit})
	random := rand.New(rand.NewSource(1))
	oldest := time.Time{}
	for i := range 200 {
		w.available = gi/2 + random.Int63n(4*gi)
		w.round(time.Duration(1+random.Intn(60)) * time.Second)
		w.log.Admission(podObject(i), Waiting, "r", "m")
		if i%50 == 0 {
			// Pods change, as with a resize.
			for j := range w.facts {
				changed := *w.facts[j]
				w.facts[j] = &changed
			}
		}
		g := w.log.ring
		if g.size > limit {
			t.Fatalf("%d bytes after %d rounds", g.size, i)
		}
		oldest = g.records[0].time
	}
	if !oldest.After(start) {
		t.Error("nothing was dropped")
	}
	for len(w.log.ring.records) > 0 {
		w.log.ring.drop(0)
	}
	if g := w.log.ring; g.size != 0 || g.acting != 0 || len(g.pods) != 0 || len(g.rules) != 0 {
		t.Errorf("an empty ring has %d bytes, %d pods, %d rules", g.size, len(g.pods), len(g.rules))
	}
}

// lines decodes a trace.
func lines(t testing.TB, text []byte) (list []trace.Line) {
	t.Helper()
	var d trace.Decoder
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		l, err := d.Decode(s.Bytes())
		if err != nil {
			t.Fatalf("%v: %.300s", err, s.Text())
		}
		list = append(list, l)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// replayed makes all decisions of a trace again and compares them. It returns how many there were.
func replayed(t testing.TB, list []trace.Line) (decisions int) {
	t.Helper()
	state, number := policy.State{}, uint64(0)
	for _, l := range list {
		d := l.Trace.Decision
		if d == nil {
			continue
		}
		if l.Input.State != nil {
			state = *l.Input.State
		} else if number+1 != d.Number {
			t.Fatalf("decision %d after %d has no state", d.Number, number)
		}
		before := state
		var again policy.Decision
		again, state = policy.Decide(l.Input.Snapshot, l.Input.Rules, before)
		number = d.Number
		described := trace.Describe(&trace.Round{Trigger: d.Trigger, Snapshot: l.Input.Snapshot, Rules: l.Input.Rules,
			State: &before, Decision: &again})
		described.Heartbeat = d.Heartbeat
		was := *d
		was.Replay = nil
		a, _ := json.Marshal(described)
		b, _ := json.Marshal(was)
		if !bytes.Equal(a, b) {
			t.Fatalf("decision %d: again\n%s\nwas\n%s", d.Number, a, b)
		}
		decisions++
	}
	return decisions
}

// play makes rounds with and without pressure.
func (w *world) play(rounds int) {
	for i := range rounds {
		switch {
		case i%40 < 20:
			w.available = 8*gi - int64(i%40)*300*mi
		case i%40 < 30:
			w.available = gi/2 + int64(i%7)*10*mi
		default:
			w.available = 6 * gi
		}
		w.round(time.Duration(1+i%9) * time.Second)
	}
}

func TestATraceHasWhatDecisionsWereMadeFrom(t *testing.T) {
	w := newWorld(t, 20, Config{})
	w.play(200)
	w.evict()
	var text bytes.Buffer
	if err := w.log.WriteTrace(&text, &Query{}); err != nil {
		t.Fatal(err)
	}
	if n := replayed(t, lines(t, text.Bytes())); n != w.kept {
		t.Errorf("%d decisions in the trace, %d were kept", n, w.kept)
	}
	noSecret(t, "trace", text.String())
	if !bytes.Contains(text.Bytes(), []byte(`"evictionPreference":5`)) {
		t.Error("the preference is lost")
	}
}

// A state that the last decision has not left, since conditions were taken over from the Node, is in the trace.
func TestATraceHasAStateThatWasReplaced(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.round(0)
	w.state = w.state.WithConditions([]v1.NodeConditionType{v1.NodeMemoryPressure}, start.Add(-1000*time.Hour))
	w.replaced = true
	w.round(10 * time.Second)
	var text bytes.Buffer
	if err := w.log.WriteTrace(&text, &Query{}); err != nil {
		t.Fatal(err)
	}
	if n := replayed(t, lines(t, text.Bytes())); n != 2 {
		t.Errorf("%d decisions in the trace", n)
	}
}

func TestNoRecordHasASecret(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.round(0)
	r := w.evict()
	list, err := listed(w.log, &Query{})
	if err != nil {
		t.Fatal(err)
	}
	d, _, err := w.log.Decision(r.Decision.Number)
	if err != nil {
		t.Fatal(err)
	}
	for what, value := range map[string]any{"list": list, "decision": d, "status": w.log.Status(true)} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		noSecret(t, what, string(text))
	}
}

func TestTheStatus(t *testing.T) {
	w := newWorld(t, 3, Config{
		Waiting: func() []debugv1alpha1.PressurePod { return []debugv1alpha1.PressurePod{{Name: "waits"}} },
		Plugins: func() []debugv1alpha1.PressurePlugin { return []debugv1alpha1.PressurePlugin{{Name: "p"}} },
	})
	if s := w.log.Status(true); s.Decision != 0 || !s.Observed.IsZero() || s.Signals == nil {
		t.Errorf("before the first round: %+v", s)
	}
	w.available = 1300 * mi
	w.round(0)
	w.round(10 * time.Second)
	w.clock.Step(7 * time.Second)
	s := w.log.Status(true)
	if len(s.Signals) != 1 || *s.Signals[0].Headroom != 1300*mi-gi || s.Signals[0].AgeSeconds != 7 ||
		s.Signals[0].Level != "calm" || s.Waiting[0].Name != "waits" || s.Plugins[0].Name != "p" {
		t.Errorf("%+v", s)
	}
	if len(s.Rankings) != 1 || len(s.Rankings[0].Candidates) != 3 || s.Rankings[0].Needed {
		t.Errorf("rankings %+v", s.Rankings)
	}
	if plain := w.log.Status(false); plain.Rankings != nil || plain.Log.Records == 0 || plain.Log.LimitBytes != 8<<20 {
		t.Errorf("%+v", plain)
	}
}

func TestTextsAreCut(t *testing.T) {
	w := newWorld(t, 0, Config{})
	long := string(bytes.Repeat([]byte("ü"), 3000))
	w.log.Admission(podObject(1), Rejected, "r", long)
	w.log.Result(t.Context(), &eviction.Result{Decision: 1, Kind: eviction.KillFailed, Err: errors.New(long)})
	list, _ := listed(w.log, &Query{})
	if m := list.Admissions[0].Message; len(m) > 1<<10 || !bytes.HasPrefix([]byte(long), []byte(m)) || len(m) < 1000 {
		t.Errorf("%d bytes", len(m))
	}
}
