package reporter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// labelled is an answer with one label of the CustomNodeResource.
func labelled(key, value string) []merge.Content {
	return []merge.Content{{Kind: node.GroupVersionKind, Fields: []merge.ReportField{
		{Part: merge.Metadata, Name: "Labels", Value: []byte(`{"example.com/` + key + `":"` + value + `"}`)},
	}}}
}

// sender is a plugin whose stream sends what it is given.
func sender(contents <-chan []merge.Content) *scripted {
	return &scripted{watch: func(ctx context.Context, send func([]merge.Content)) error {
		for {
			select {
			case c := <-contents:
				send(c)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}}
}

// merging runs a merger with the driver of a rig until the end of the test, and returns its results.
func (r *rig) merging(options merge.Options, sinks ...func(Merged)) (m *Merger, results *[]Merged) {
	results = &[]Merged{}
	sinks = append([]func(Merged){func(m Merged) { *results = append(*results, m) }}, sinks...)
	m = NewMerger(MergerConfig{Driver: r.Driver, Options: options, Sinks: sinks, Clock: clock.RealClock{}})
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	r.t.Cleanup(func() { cancel(); <-done })
	return m, results
}

func TestMergerMergesEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := make(chan []merge.Content), make(chan []merge.Content)
		r := newRig(t, map[string]Plugin{"a": sender(a), "b": sender(b)})
		r.start()
		defer r.stop()
		m, results := r.merging(merge.Options{})
		pass(time.Second)
		*results = nil
		a <- labelled("x", "1")
		synctest.Wait()
		first := time.Now()
		b <- labelled("y", "2")
		pass(time.Second)
		b <- labelled("y", "2")
		pass(time.Second)
		var got []map[string]string
		for _, m := range *results {
			got = append(got, m.Result.CustomNodeResource.Labels)
		}
		want := []map[string]string{{"example.com/x": "1"}, {"example.com/x": "1", "example.com/y": "2"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if since := (*results)[1].Since; !since.Equal(first) {
			t.Errorf("the second change came at %v, is said to be of %v", first, since)
		}
		if diff := cmp.Diff((*results)[1], m.Last()); diff != "" {
			t.Error(diff)
		}
	})
}

// However often plugins change their answers, there are at most two merges in a second, and the last has the newest.
func TestMergerIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := make(chan []merge.Content)
		r := newRig(t, map[string]Plugin{"a": sender(a)})
		r.start()
		defer r.stop()
		m, results := r.merging(merge.Options{})
		pass(time.Second)
		*results = nil
		values := []string{"1", "2"}
		for i := range 1000 {
			a <- labelled("x", values[i%2])
			time.Sleep(10 * time.Millisecond)
		}
		pass(time.Second)
		if n := len(*results); n < 20 || n > 22 {
			t.Errorf("%d merges in 10 s", n)
		}
		if got := m.Last().Result.CustomNodeResource.Labels["example.com/x"]; got != "2" {
			t.Errorf("the last value is %q", got)
		}
	})
}

// Merges that take long are made seldom.
func TestMergerThatTakesLong(t *testing.T) {
	for took, most := range map[time.Duration]int{time.Second: 13, 20 * time.Second: 3} {
		synctest.Test(t, func(t *testing.T) {
			a := make(chan []merge.Content)
			r := newRig(t, map[string]Plugin{"a": sender(a)})
			r.start()
			defer r.stop()
			var merges atomic.Int32
			r.merging(merge.Options{}, func(Merged) { merges.Add(1); time.Sleep(took) })
			begun := time.Now()
			for i := 0; time.Since(begun) < time.Minute; i++ {
				a <- labelled("x", fmt.Sprint(i))
				time.Sleep(100 * time.Millisecond)
			}
			if n := int(merges.Load()); n < most-2 || n > most {
				t.Errorf("%v each: %d merges in a minute", took, n)
			}
			pass(maxMergeInterval + took)
		})
	}
}

func TestMergerTakesNewOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := make(chan []merge.Content)
		r := newRig(t, map[string]Plugin{"a": sender(a)})
		r.start()
		defer r.stop()
		m, results := r.merging(merge.Options{})
		a <- labelled("x", "1")
		pass(time.Second)
		m.SetOptions(merge.Options{LeaveOut: []string{"metadata.labels"}})
		pass(time.Second)
		last := (*results)[len(*results)-1]
		if len(last.Result.Fields) > 0 || !last.Since.IsZero() {
			t.Errorf("%+v", last)
		}
	})
}

// A sink that panics costs one result.
func TestMergerSurvivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := make(chan []merge.Content)
		r := newRig(t, map[string]Plugin{"a": sender(a)})
		r.start()
		defer r.stop()
		var calls int
		m, _ := r.merging(merge.Options{}, func(Merged) {
			if calls++; calls == 1 {
				panic("sink")
			}
		})
		a <- labelled("x", "1")
		pass(2 * time.Second)
		if calls < 2 || len(m.Last().Result.Fields) != 1 {
			t.Errorf("%d calls, %+v", calls, m.Last())
		}
	})
}

func TestListOfReporters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		remote := at("/1", &scripted{poll: func(context.Context) ([]merge.Content, error) {
			return []merge.Content{{Kind: node.GroupVersionKind, Fields: []merge.ReportField{{Name: "Nonsense"}}}}, nil
		}})
		remote.Registered = now
		remote.Health = func() debugv1alpha1.PluginHealth { return debugv1alpha1.PluginHealth{LatencySeconds: 1} }
		off := Remote{Name: "off", Socket: "/2", Plugin: polled("a"), Registered: now}
		r := newRig(t, map[string]Plugin{"in": polled("a"), "idle": polled("a")}, remote, off)
		options := r.options
		options.Remote = func(name string) bool { return name != "off" }
		options.InTree = func(name string) bool { return name != "idle" }
		r.SetOptions(options)
		r.start()
		defer r.stop()
		m, _ := r.merging(merge.Options{})
		pass(time.Second)
		result := m.Last().Result
		list := r.List(&result)
		var names []string
		for _, row := range list {
			names = append(names, row.Name)
		}
		if want := []string{"idle", "in", "off", "p"}; !slices.Equal(names, want) {
			t.Fatalf("%q", names)
		}
		if row := list[0]; row.Enabled || row.Active || !row.InTree || !row.Answered.IsZero() {
			t.Errorf("%+v", row)
		}
		if row := list[2]; row.Enabled || row.Active || row.InTree || !row.Registered.Equal(now) {
			t.Errorf("%+v", row)
		}
		row := list[3]
		if !row.Enabled || !row.Active || row.Answered.IsZero() || row.Health.LatencySeconds != 1 ||
			len(row.RefusedFields) != 1 || row.RefusedFields[0].Field != "spec.Nonsense" {
			t.Errorf("%+v", row)
		}
	})
}

func TestObjectOfAPage(t *testing.T) {
	now := time.Now()
	result := merge.Merge([]merge.Report{
		{Plugin: "a", Contents: labelled("x", "1")}, {Plugin: "b", Contents: labelled("x", "2")},
	}, merge.Options{})
	got := ObjectOf(&result, Write{
		Kind: "CustomNodeResource", Selected: true, Last: now, Count: 3, PendingSince: now.Add(-overdueAfter),
		Err: errors.New("away"),
	}, now)
	want := debugv1alpha1.ReportedObject{
		Kind: "CustomNodeResource", Published: true, LastWrite: now, Writes: 3, PendingSince: now.Add(-overdueAfter),
		Overdue: true, LastError: "away",
		Fields:    []debugv1alpha1.ReportedField{{Path: "metadata.labels", Bytes: 21, Plugins: []string{"a", "b"}}},
		Conflicts: []debugv1alpha1.ReportConflict{{Path: "metadata.labels[example.com/x]", Used: "a", Ignored: "b"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	other := ObjectOf(&result, Write{Kind: "Node", PendingSince: now.Add(-time.Hour)}, now)
	if other.Overdue || other.Fields != nil {
		t.Errorf("%+v", other)
	}
}

// Until the plugins of restored answers have answered, and ten seconds after the start, results are not confirmed.
func TestMergerSaysWhatIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := make(chan []merge.Content), make(chan []merge.Content)
		old := restorable("p", "", "")
		old.Contents = labelled("p", "1")
		r := newRig(t, map[string]Plugin{"a": sender(a), "p": sender(p)}).restored(old)
		options := r.options
		options.InTree = func(name string) bool { return name != "p" }
		options.StopGracePeriod = time.Hour
		r.SetOptions(options)
		r.start()
		defer r.stop()
		m, _ := r.merging(merge.Options{})
		expect := func(what string, all, confirmed int) {
			t.Helper()
			last, n := m.Last(), -1
			if last.Confirmed != nil {
				n = len(last.Confirmed.CustomNodeResource.Labels)
			}
			if got := len(last.Result.CustomNodeResource.Labels); got != all || n != confirmed {
				t.Errorf("%s: %d labels, %d confirmed", what, got, n)
			}
		}
		pass(0)
		expect("restored", 1, 0)
		a <- labelled("a", "1")
		pass(time.Second)
		expect("another plugin has answered", 2, 1)
		pass(15 * time.Second)
		expect("later", 2, 1)
		pass(unconfirmedTime)
		expect("a minute after the start", 2, -1)
		options.InTree = all
		r.SetOptions(options)
		pass(0)
		p <- labelled("p", "1")
		pass(time.Second)
		expect("both have answered", 2, -1)
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, map[string]Plugin{"p": &scripted{poll: func(context.Context) ([]merge.Content, error) {
			return labelled("p", "1"), nil
		}}})
		r.start()
		defer r.stop()
		m, _ := r.merging(merge.Options{})
		pass(settleTime - time.Millisecond)
		if m.Last().Confirmed == nil {
			t.Error("settled too early")
		}
		pass(time.Second)
		if m.Last().Confirmed != nil || len(m.Last().Result.Fields) != 1 {
			t.Errorf("not settled: %+v", m.Last())
		}
	})
}

func TestOverdueWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Pointer[Write]
		now.Store(&Write{})
		events := record.NewFakeRecorder(10)
		watch := &OverdueWatch{
			Writes: func() []Write { return []Write{*now.Load()} }, Clock: clock.RealClock{}, Recorder: events,
			Node: &v1.ObjectReference{Kind: "Node"},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { watch.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		expect := func(what string, w Write, want ...string) {
			t.Helper()
			now.Store(&w)
			pass(overdueAfter + time.Minute)
			var got []string
			for len(events.Events) > 0 {
				got = append(got, <-events.Events)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q", what, got)
			}
		}
		w := Write{Kind: "Node", Selected: true}
		expect("nothing to write", w)
		w.PendingSince, w.Err = time.Now(), errors.New("away")
		expect("overdue", w, "Warning ReporterObjectOverdue What reporter plugins report has not been written to the Node "+
			"for 5m0s: away")
		expect("still overdue", w)
		w.PendingSince = time.Time{}
		expect("written", w)
		w.PendingSince, w.Selected = time.Now(), false
		expect("not selected", w)
	})
}
