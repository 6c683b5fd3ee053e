package server

import (
	"encoding/json"
	"math"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

// examplePlugins has a plugin in which each field is set, one of the agent that was not called yet, and one of each
// other kind.
func examplePlugins() debugv1alpha1.PluginList {
	ago := func(d time.Duration) time.Time { return viewTime.Add(-d) }
	return debugv1alpha1.PluginList{
		Time: viewTime, Omitted: 7,
		Plugins: []debugv1alpha1.Plugin{
			{
				Name: "example", Type: "EvictionPlugin", InTree: true, Socket: "/plugins/example.sock", Enabled: true, DryRun: true,
				Registered: ago(time.Hour),
				Health: debugv1alpha1.PluginHealth{
					Failures: 3, LastError: "rpc error:\tdeadline <5s>", LastErrorTime: ago(time.Minute),
					SuspendedUntil: ago(-30 * time.Second), LatencySeconds: 0.0125,
				},
				LastAnswer: &debugv1alpha1.PluginAnswer{
					Time: ago(5 * time.Second), ThresholdType: "HARD_MET", Candidates: 4, Pods: 2, TopPods: 1,
				},
				Thresholds: []debugv1alpha1.PluginThreshold{
					{
						Type: "HARD_MET", Scope: "memory", Operator: "LESS_THAN", Observed: 1.5, Target: 2, GraceSeconds: 10,
						MetSeconds: 12.5, Missing: 1, Confirmed: true,
					},
					{
						Type: "SOFT_MET", Scope: "a\tscope", Operator: "GREATER_THAN", Observed: debugv1alpha1.Number(math.NaN()),
						Target: debugv1alpha1.Number(math.Inf(1)), GraceSeconds: math.MaxInt64,
					},
				},
				Pods: debugv1alpha1.PluginPods{
					Asked: 5, Waiting: 3, InFlight: 2, Evicted: 9, Dropped: map[string]int64{"unknown_pod": 2, "critical": 1},
				},
				RefusedConditions: []debugv1alpha1.RefusedCondition{{Name: "a/b", Reason: "must be a name"}},
			},
			{
				Name: "far", Type: "EvictionPlugin", Socket: "/plugins/far.sock", Registered: ago(time.Minute),
				Health: debugv1alpha1.PluginHealth{Failures: 1, LastError: "no such file"},
			},
			{Name: "memory-growth", Type: "EvictionPlugin", InTree: true, Enabled: true},
		},
		Requests: []debugv1alpha1.PluginRequest{
			{
				Namespace: "a", Name: "pod", UID: "u1", Plugins: []string{"example", "far"}, Scope: "force", Forced: true,
				GraceSeconds: new(int64(30)), Reason: "too <much>", Since: ago(40 * time.Second), Killer: "PodWorker",
				State: "InFlight",
			},
			{
				Namespace: "b", Name: "soft", UID: "u2", Plugins: []string{"far"}, Scope: "memory", Since: viewTime,
				Killer: "EvictionAPI", State: "Blocked",
			},
		},
		Notices: []debugv1alpha1.PluginNotice{{
			Namespace: "c", Name: "told", UID: "u3", Plugins: []string{"example", "far"}, Scope: "cpu", Reason: "too <much>",
			Since: ago(90 * time.Second), GraceSeconds: 15,
		}},
		Conditions: []debugv1alpha1.PluginCondition{
			{
				Target: "Node", Name: "MemoryTight", True: true, Effects: []string{"NoExecute", "NoSchedule"},
				Plugins: []string{"example", "far"}, LastMet: ago(5 * time.Second),
			},
			{Target: "CustomNodeResource", Name: "Other"},
		},
		Reporters: []debugv1alpha1.Reporter{
			{
				Name: "far", Socket: "/plugins/far.sock", InTree: true, Enabled: true, Active: true, Registered: ago(time.Hour),
				Health: debugv1alpha1.PluginHealth{
					Failures: 3, LastError: "unavailable", LastErrorTime: ago(time.Minute),
					SuspendedUntil: ago(-30 * time.Second), LatencySeconds: 0.0125,
				},
				Streaming: true, Answered: ago(40 * time.Second), UnconfirmedSince: ago(20 * time.Second), Restored: true,
				RefusedAnswers: []string{"the answer has 65 contents: at most 64 are allowed"},
				RefusedFields: []debugv1alpha1.RefusedField{
					{Kind: "CustomNodeResource", Field: "status.TopologyZone", Reason: "invalid <JSON>"},
				},
			},
			{Name: "pressure", InTree: true, Enabled: true, Active: true},
		},
		Objects: []debugv1alpha1.ReportedObject{
			{
				Kind: "CustomNodeResource", Published: true, Writes: 12, LastWrite: ago(10 * time.Second),
				PendingSince: ago(6 * time.Minute), Overdue: true, LastError: "the server is currently unable", MoreConflicts: 2,
				Fields: []debugv1alpha1.ReportedField{
					{Path: "status.topologyZone", Bytes: 812, Plugins: []string{"far", "pressure"}},
				},
				Conflicts: []debugv1alpha1.ReportConflict{
					{Path: "spec.nodeResourceProperties[numa].propertyQuantity", Used: "far", Ignored: "pressure"},
				},
			},
			{Kind: "Node"},
		},
		Refused: []debugv1alpha1.RefusedRegistration{
			{
				Type: "EvictionPlugin", Time: ago(2 * time.Minute), Name: "bad\x1bname", Socket: "/plugins/bad.sock",
				Reason: "not enabled",
			},
		},
	}
}

// firstsAreComplete fails if a field is not set in the value, or in the first element of a list in it.
func firstsAreComplete(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	switch {
	case v.IsZero():
		t.Errorf("%s is not set in the example", path)
	case v.Kind() == reflect.Pointer:
		firstsAreComplete(t, path, v.Elem())
	case v.Kind() == reflect.Slice:
		firstsAreComplete(t, path+"[0]", v.Index(0))
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			firstsAreComplete(t, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
}

func TestDebugPluginsFormats(t *testing.T) {
	firstsAreComplete(t, "PluginList", reflect.ValueOf(examplePlugins()))
	handler := debugHandlerOf(t, DebugSources{Plugins: examplePlugins}, newAuth(everything), debugConfig())
	for path, file := range map[string]string{
		"/debug/plugins": "testdata/debugplugins.json", "/debug/plugins?format=text": "testdata/debugplugins.txt",
	} {
		answer := request(t, handler, endpoint{"GET", path}, "reader")
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Code != http.StatusOK || answer.Body.String() != string(want) {
			t.Errorf("%s: %d\n%s\nwant\n%s", path, answer.Code, answer.Body, want)
		}
	}
}

// A client of the page gets back what the source returned, but for numbers that are not finite.
func TestDebugPluginsCanBeDecoded(t *testing.T) {
	want := examplePlugins()
	want.Plugins[0].Thresholds = want.Plugins[0].Thresholds[:1]
	source := func() debugv1alpha1.PluginList { return want }
	handler := debugHandlerOf(t, DebugSources{Plugins: source}, newAuth(everything), debugConfig())
	var got debugv1alpha1.PluginList
	err := json.Unmarshal(request(t, handler, endpoint{"GET", "/debug/plugins"}, "reader").Body.Bytes(), &got)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v: %v", got, err)
	}
}

func TestDebugPluginsWithoutPlugins(t *testing.T) {
	for name, source := range map[string]func() debugv1alpha1.PluginList{
		"no source":  nil,
		"no plugins": func() debugv1alpha1.PluginList { return debugv1alpha1.PluginList{Time: viewTime} },
	} {
		handler := debugHandlerOf(t, DebugSources{Plugins: source}, newAuth(everything), debugConfig())
		answer := request(t, handler, endpoint{"GET", "/debug/plugins"}, "reader")
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(answer.Body.Bytes(), &fields); err != nil || answer.Code != http.StatusOK {
			t.Fatalf("%s: %d %s: %v", name, answer.Code, answer.Body, err)
		}
		if len(fields) != 2 || string(fields["plugins"]) != "[]" || string(fields["time"]) == `"0001-01-01T00:00:00Z"` {
			t.Errorf("%s: %s", name, answer.Body)
		}
		text := request(t, handler, endpoint{"GET", "/debug/plugins?format=text"}, "reader").Body.String()
		if !strings.HasPrefix(text, "NAME  TYPE  ") || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: %s", name, text)
		}
	}
}
