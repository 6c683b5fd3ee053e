package decisionlog

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

func TestWatchersReceiveRecords(t *testing.T) {
	w := newWorld(t, 3, Config{})
	watcher, err := w.log.Watch()
	if err != nil {
		t.Fatal(err)
	}
	w.round(0)
	r := w.evict()
	w.log.Admission(podObject(9), Waiting, "r", "m")
	w.log.Unwatch(watcher)
	w.log.Unwatch(watcher)
	w.round(time.Hour)
	names := map[string]int{}
	var last debugv1alpha1.PressureDecision
	for e := range watcher.Events() {
		names[e.Name]++
		if e.Name != "decision" {
			continue
		}
		if err := json.Unmarshal(e.Data, &last); err != nil || e.ID != last.Number {
			t.Fatalf("event %d: %v, decision %d", e.ID, err, last.Number)
		}
	}
	if last.Number != r.Decision.Number || names["decision"] < 2 || names["outcome"] != 3 || names["admission"] != 1 {
		t.Errorf("last decision %d, events %v", last.Number, names)
	}
}

// Clients that do not read are dropped, others are not; more than the bound are refused.
func TestSlowWatchersAreDropped(t *testing.T) {
	w := newWorld(t, 3, Config{})
	var slow []*Watcher
	for range maxWatchers - 1 {
		n, err := w.log.Watch()
		if err != nil {
			t.Fatal(err)
		}
		slow = append(slow, n)
	}
	reads, err := w.log.Watch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.log.Watch(); !errors.Is(err, ErrTooManyWatchers) {
		t.Error(err)
	}
	for range watchQueue + 1 {
		w.round(time.Minute)
		<-reads.Events()
	}
	for _, n := range slow {
		received := 0
		for range n.Events() {
			received++
		}
		if received != watchQueue {
			t.Errorf("a slow client received %d events", received)
		}
	}
	if s := w.log.Status(false); s.Log.Watchers != 1 {
		t.Errorf("%d clients are left", s.Log.Watchers)
	}
	w.log.Unwatch(reads)
}
