package decisionlog

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// heapInUse returns the bytes of the heap that are in use.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// annotated returns a pod whose owner writes long annotations with our prefix, which differ each time.
func annotated(i, version, bytes int) *v1.Pod {
	pod := podObject(i)
	text := strings.Repeat(string(rune('a'+version%26)), bytes)
	pod.Annotations[snapshot.AnnotationPrefix+"note"] = text
	pod.Annotations[policy.OptOutAnnotation] = text
	return pod
}

// Annotations of pods are theirs to write: they neither occupy memory beyond the bound nor displace records.
func TestLongAnnotationsAreNotKept(t *testing.T) {
	const limit, rounds = 1 << 20, 100
	w := newWorld(t, 3, Config{LimitBytes: limit})
	w.round(0)
	before := heapInUse()
	for i := range rounds {
		w.facts[0] = snapshot.NewFacts(annotated(0, i, 100<<10), false)
		w.round(time.Minute)
	}
	w.facts[0] = snapshot.NewFacts(podObject(0), false)
	w.round(time.Minute)
	if used := heapInUse() - before; used > 2*limit {
		t.Errorf("%d KiB are in use for a log of %d KiB", used>>10, limit>>10)
	}
	if s := w.log.state(); s.Records < rounds {
		t.Errorf("%d records are left of %d", s.Records, rounds)
	}
	var text bytes.Buffer
	if err := w.log.WriteTrace(&text, &Query{}); err != nil {
		t.Fatal(err)
	}
	if n := replayed(t, lines(t, text.Bytes())); n != w.kept {
		t.Errorf("%d decisions in the trace, %d were kept", n, w.kept)
	}
	if !bytes.Contains(text.Bytes(), []byte(`"evictionPreference":5`)) {
		t.Error("the preference is lost")
	}
	runtime.KeepAlive(w)
}

// A record is a heartbeat only if nothing has changed.
func TestChangesAreNoHeartbeats(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.round(0)
	heartbeat := func(what string, want bool) {
		t.Helper()
		list, err := listed(w.log, &Query{Limit: 1})
		if err != nil || list.Items[0].Heartbeat != want {
			t.Errorf("%s: heartbeat %t: %v", what, list.Items[0].Heartbeat, err)
		}
	}
	w.tune = func(s *snapshot.Snapshot) { s.RuntimeSilent = true }
	w.round(10 * time.Second)
	heartbeat("the runtime is silent", false)
	w.round(time.Minute)
	heartbeat("it still is", true)
	w.tune = func(s *snapshot.Snapshot) {
		s.InFlight = []snapshot.InFlight{{UID: w.facts[0].UID, Signal: snapshot.NoSignal, State: snapshot.Stopping}}
	}
	w.round(10 * time.Second)
	heartbeat("it answers, and a pod is in flight", false)
	w.tune = nil
	w.round(10 * time.Second)
	heartbeat("the pod is released", false)
	w.round(time.Minute)
	heartbeat("nothing", true)
	w.available = gi / 2
	w.round(10 * time.Second)
	w.available = gi - 50*mi
	r := w.round(10 * time.Second)
	if len(r.Decision.Needs) == 0 {
		t.Fatal("there is no need")
	}
	w.available = gi + 50*mi
	w.round(10 * time.Second)
	heartbeat("the need is over", false)
}

// Each decision of a trace can be made again, also of one that begins later, is limited, or is about one pod.
func TestPartsOfATraceHaveWhatDecisionsWereMadeFrom(t *testing.T) {
	w := newWorld(t, 8, Config{})
	w.play(60)
	r := w.evict()
	uid := r.Decision.Victims[0].Pod.UID
	// Records of other kinds stand between decisions.
	for i := range 20 {
		w.available = 4*gi + int64(i%2)*gi
		w.round(5 * time.Second)
		w.clock.Step(2 * time.Second)
		w.log.Admission(podObject(i%8), Rejected, "r", "m")
	}
	var queries []Query
	for i := range 20 {
		queries = append(queries, Query{Since: w.clock.Now().Add(-time.Duration(i*7) * time.Second)}, Query{Limit: i + 1},
			Query{Since: w.clock.Now().Add(-time.Duration(i*7+1) * time.Second)})
	}
	queries = append(queries, Query{Pod: &PodQuery{UID: uid}}, Query{Pod: &PodQuery{UID: uid}, Limit: 3})
	for _, q := range queries {
		var text bytes.Buffer
		if err := w.log.WriteTrace(&text, &q); err != nil {
			t.Fatal(err)
		}
		list, err := listed(w.log, &q)
		if err != nil {
			t.Fatal(err)
		}
		if n := replayed(t, lines(t, text.Bytes())); n < len(list.Items) || n > len(list.Items)+stateEvery {
			t.Errorf("%+v: %d decisions in the trace, %d in the list", q, n, len(list.Items))
		}
	}
}

// What is known of the file that is being written does not grow with the pods that come and go.
func TestAFileForgetsPodsThatAreGone(t *testing.T) {
	files := &memory{}
	d := NewDisk(DiskConfig{Directory: "/d", Files: files, MaxBytes: 256 << 20, MaxAge: 1000 * time.Hour, Node: "n1",
		Clock: clock.RealClock{}})
	w := newWorld(t, 5, Config{Disk: d})
	for range 300 {
		for j := range w.facts {
			w.facts[j] = snapshot.NewFacts(podObject(j), false)
		}
		w.round(time.Minute)
		d.write(t.Context())
	}
	if n := len(d.file.pods); n > 2*len(w.facts) {
		t.Errorf("%d pods are remembered of a node with %d", n, len(w.facts))
	}
	d.closeFile(t.Context())
	if n := replayed(t, lines(t, files.text(t, files.names()[0]))); n != w.kept {
		t.Errorf("%d decisions in the file, %d were kept", n, w.kept)
	}
}

// Decisions that evicted are kept longer than what a pod that goes up and down makes the log record.
func TestANoisyPodDoesNotDisplaceEvictions(t *testing.T) {
	w := newWorld(t, 30, Config{LimitBytes: 256 << 10})
	w.round(0)
	evicted := w.evict()
	w.available = 8 * gi
	w.round(10 * time.Minute)
	for i := range 800 {
		w.available = int64(4+i%4) * gi
		w.round(time.Second)
	}
	d, ok, err := w.log.Decision(evicted.Decision.Number)
	if err != nil || !ok || len(d.Victims) != 1 || len(d.Outcomes) != 3 {
		t.Fatalf("found %t, %d victims, %d outcomes: %v", ok, len(d.Victims), len(d.Outcomes), err)
	}
	if s := w.log.state(); s.Bytes > s.LimitBytes {
		t.Errorf("%d bytes of %d", s.Bytes, s.LimitBytes)
	}
	// They do not take all of the memory either.
	for range 200 {
		w.available = gi / 2
		w.state = policy.State{}
		w.round(10 * time.Second)
		w.available = 8 * gi
		w.round(10 * time.Minute)
	}
	newest := w.round(time.Minute)
	if _, ok, _ := w.log.Decision(newest.Decision.Number); !ok {
		t.Error("the newest decision is not there")
	}
	if s := w.log.state(); s.Bytes > s.LimitBytes {
		t.Errorf("%d bytes of %d", s.Bytes, s.LimitBytes)
	}
}

// The way to a threshold is recorded, also while the node is too close to it to be calm.
func TestTheWayToAThresholdIsRecorded(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.available = gi + 900*mi
	w.round(0)
	for range 4 {
		w.available -= 200 * mi
		w.round(10 * time.Second)
	}
	if w.kept != 5 {
		t.Errorf("%d of 5 rounds are kept", w.kept)
	}
	for range 5 {
		w.round(time.Second)
	}
	if w.kept != 5 {
		t.Errorf("%d rounds are kept, and nothing has changed", w.kept)
	}
}
