package terminations

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// evictionRecord returns the record of an eviction at noon, with a grace period of 30 s.
func evictionRecord(uid types.UID) Record {
	return Record{
		UID: uid, Namespace: "ns", Name: "name-" + string(uid), Cause: Eviction,
		GracePeriodSeconds: 30, Requested: noon, Deadline: noon.Add(30 * time.Second),
		Disruption: &podkill.Disruption{
			Phase: v1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory.",
			Conditions: []v1.PodCondition{{
				Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
				LastTransitionTime: metav1.NewTime(noon),
			}},
		},
	}
}

func drawRecord(t *rapid.T, uid types.UID) Record {
	r := evictionRecord(uid)
	r.Name = rapid.StringMatching(`[a-z0-9.-]{0,20}`).Draw(t, "name")
	r.Cause = rapid.SampledFrom([]Cause{Eviction, Kill, Deletion}).Draw(t, "cause")
	r.GracePeriodSeconds = rapid.Int64Range(1, 1<<40).Draw(t, "grace")
	r.Deadline = noon.Add(time.Duration(rapid.Int64Range(0, 1<<55).Draw(t, "deadline")))
	if rapid.Bool().Draw(t, "noDisruption") {
		r.Disruption = nil
		return r
	}
	r.Disruption.Phase = rapid.SampledFrom([]v1.PodPhase{"", v1.PodFailed, v1.PodSucceeded}).Draw(t, "phase")
	r.Disruption.Message = strings.ToValidUTF8(rapid.String().Draw(t, "message"), "?")
	r.Disruption.KeepSucceeded = rapid.Bool().Draw(t, "keepSucceeded")
	return r
}

func TestDecodeReadsWhatEncodeWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord(t, "uid-1")
		data, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decode(data); err != nil || !equal(got, want) {
			t.Fatalf("%s\nis decoded as %+v (%v), want %+v", data, got, err, want)
		}
	})
}

// equal compares records; times are compared by Time.Equal.
func equal(a, b Record) bool { return cmp.Equal(a, b, cmpopts.EquateEmpty()) }

// Later releases have to read the files of this release.
const writtenRecord = `{"version":1,"uid":"u1","namespace":"ns","name":"name-u1","cause":"eviction",` +
	`"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory.",` +
	`"conditions":[{"type":"DisruptionTarget","status":"True","lastProbeTime":null,` +
	`"lastTransitionTime":"2026-03-01T12:00:00Z","reason":"TerminationByKubelet"}]},` +
	`"graceSeconds":30,"requested":"2026-03-01T12:00:00Z","deadline":"2026-03-01T12:00:30Z"}`

func TestFormat(t *testing.T) {
	data, err := encode(evictionRecord("u1"))
	if err != nil || string(data) != writtenRecord {
		t.Errorf("the format has changed (%v); it is\n%s", err, data)
	}
	later := strings.Replace(writtenRecord, `"version":1`, `"version":1,"fence":{"memory":1}`, 1)
	if got, err := decode([]byte(later)); err != nil || !equal(got, evictionRecord("u1")) {
		t.Errorf("a field of a later release is not ignored: %+v, %v", got, err)
	}
}

func TestDecodeErrorsNameTheField(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"empty":            {writtenRecord, ``, "not a JSON object"},
		"truncated":        {`"deadline":"2026-03-01T12:00:30Z"}`, ``, "not a JSON object"},
		"array":            {writtenRecord, `[]`, "not a JSON object"},
		"null":             {writtenRecord, `null`, "version: Required value"},
		"no version":       {`"version":1,`, ``, "version: Required value"},
		"later version":    {`"version":1`, `"version":2`, `version: Unsupported value: 2: supported values: "1"`},
		"version a string": {`"version":1`, `"version":"one"`, "version: a string, must be of type int"},
		"trailing data":    {`12:00:30Z"}`, `12:00:30Z"} {}`, "after top-level value"},
		"no UID":           {`"uid":"u1"`, `"uid":""`, "uid: Required value"},
		"other cause": {
			`"eviction"`, `"boredom"`, `cause: Unsupported value: "boredom": supported values: "eviction", "kill", "deletion"`,
		},
		"no grace":        {`"graceSeconds":30`, `"graceSeconds":0`, "graceSeconds: Invalid value: 0: must be at least 1"},
		"grace too large": {`"graceSeconds":30`, `"graceSeconds":1e30`, "graceSeconds: a number 1e30, must be of type int64"},
		"no time":         {`"requested":"2026-03-01T12:00:00Z",`, ``, "requested: Required value"},
		"time a word":     {`"requested":"2026-03-01T12:00:00Z"`, `"requested":"noon"`, `"noon"`},
		"deadline before": {`12:00:30Z`, `11:59:59Z`, "deadline: Invalid value"},
		"other phase":     {`"Failed"`, `"Gone"`, `status.phase: Unsupported value: "Gone"`},
		"condition":       {`"status":"True"`, `"status":"Maybe"`, `status.conditions[0].status: Unsupported value: "Maybe"`},
		"condition type":  {`"DisruptionTarget"`, `""`, "status.conditions[0].type: Required value"},
		"too large":       {writtenRecord, writtenRecord + strings.Repeat(" ", maxSize), "size: "},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(writtenRecord, c.old, c.new, 1)
			if text == writtenRecord {
				t.Fatal("nothing was replaced")
			}
			if _, err := decode([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestEncodeRejectsInvalidRecords(t *testing.T) {
	for name, invalidate := range map[string]func(*Record){
		"no grace":      func(r *Record) { r.GracePeriodSeconds = 0 },
		"too large":     func(r *Record) { r.Disruption.Message = strings.Repeat("x", maxSize) },
		"far too late":  func(r *Record) { r.Deadline = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"unknown cause": func(r *Record) { r.Cause = "" },
	} {
		r := evictionRecord("u1")
		invalidate(&r)
		if data, err := encode(r); err == nil {
			t.Errorf("%s: encoded as %.200s", name, data)
		}
	}
}

// FuzzDecode checks that decode returns either an error, or a valid record that can be encoded and decoded again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		writtenRecord, `{}`, `null`, `{"version":2}`, `{"version":1,"status":{"conditions":[{}]}}`,
		strings.ToUpper(writtenRecord),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err != nil {
			return
		}
		if left := r.Remaining(noon); left < 1 || left > r.GracePeriodSeconds {
			t.Errorf("remaining %d of %d", left, r.GracePeriodSeconds)
		}
		if r.Disruption != nil {
			r.Disruption.Apply(&v1.PodStatus{})
		}
		again, err := encode(r)
		if err != nil {
			// Escaping may increase the size beyond the limit.
			if len(data) > maxSize/8 {
				return
			}
			t.Fatalf("%+v is decoded and cannot be encoded: %v", r, err)
		}
		if back, err := decode(again); err != nil || !equal(back, r) {
			t.Errorf("%+v\nis decoded as %+v: %v", r, back, err)
		}
	})
}

func TestRemaining(t *testing.T) {
	r := evictionRecord("u1")
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{0, 30}, {time.Millisecond, 30}, {time.Second, 29}, {1500 * time.Millisecond, 29}, {29 * time.Second, 1}, {
		29500 * time.Millisecond, 1,
	},
		{30 * time.Second, 1}, {time.Hour, 1}, {-time.Hour, 30}} {
		if got := r.Remaining(noon.Add(c.after)); got != c.want {
			t.Errorf("%v after the request %d s of 30 s remain, want %d s", c.after, got, c.want)
		}
	}
}

// Records of the version before podkill.Disruption, which were derived from the effect of a closure on two statuses,
// are decoded to the same values.
func TestRecordsOfTheClosureVersionAreRead(t *testing.T) {
	condition := func(message string) []v1.PodCondition {
		return []v1.PodCondition{{
			Type: v1.DisruptionTarget, ObservedGeneration: 3, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
			Message:            message,
			LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 22, 11, 17, 49, 0, time.UTC)),
		}}
	}
	const (
		low      = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi. "
		shutdown = "Pod was terminated in response to imminent node shutdown."
	)
	for name, want := range map[string]struct {
		cause      Cause
		disruption *podkill.Disruption
	}{
		"evicted": {
			Eviction, &podkill.Disruption{Phase: v1.PodFailed, Reason: "Evicted", Message: low, Conditions: condition(low)},
		},
		"preempted": {Eviction, &podkill.Disruption{
			Phase: v1.PodFailed, Reason: "Preempting", Message: "Preempted in order to admit critical pod",
			Conditions: condition("Pod was preempted by Kubelet to accommodate a critical pod."),
		}},
		"shutdown": {Kill, &podkill.Disruption{
			Phase: v1.PodFailed, Reason: "Terminated", Message: shutdown, Conditions: condition(shutdown), KeepSucceeded: true,
		}},
		"deleted": {Deletion, nil},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", "by-closure", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decode(data)
			record := Record{
				UID: "0f6a7a0e-7b1c-4a7e-9d2c-6b0a7c1d2e3f", Namespace: "default", Name: name, Cause: want.cause,
				Disruption:         want.disruption,
				GracePeriodSeconds: 30, Requested: noon, Deadline: noon.Add(30 * time.Second),
			}
			if err != nil || !equal(got, record) {
				t.Errorf("%s\nis decoded as %+v (%v), want %+v", data, got, err, record)
			}
			if again, err := encode(got); err != nil || string(again) != string(data) {
				t.Errorf("encoded again it is\n%s (%v), was\n%s", again, err, data)
			}
		})
	}
}
