package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/test/lossless"
)

// recoded is a snapshot that was written and read again.
func recoded(s Snapshot) (Snapshot, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return Snapshot{}, err
	}
	decoded, err := Decode(data)
	if err != nil {
		return Snapshot{}, fmt.Errorf("%w: %s", err, data)
	}
	return *decoded, nil
}

// encoding has what a snapshot must not have in each field at once: an observation has amounts or an error, and what
// must be unique is unique.
func encoding() *lossless.Encoding[Snapshot] {
	return &lossless.Encoding[Snapshot]{
		Recode: recoded,
		Values: map[reflect.Type]func(int) any{
			reflect.TypeFor[error](): func(n int) any {
				return &decodedError{fmt.Sprintf("error %d", n), ErrNotReported}
			},
			reflect.TypeFor[Signal]():         func(n int) any { return Signal(1 + n%int(NumSignals-1)) },
			reflect.TypeFor[Device]():         func(n int) any { return ImageDevice },
			reflect.TypeFor[InFlightState]():  func(n int) any { return InFlightState(1 + n%2) },
			reflect.TypeFor[Killer]():         func(n int) any { return Killer(1 + n%2) },
			reflect.TypeFor[v1.PodQOSClass](): func(n int) any { return qosClasses[n%len(qosClasses)] },
		},
		Prepare: func(s *Snapshot) {
			s.Signals[NoSignal] = Observation{Err: errNeverObserved}
			for i := 1; i < len(s.Signals); i++ {
				if o := &s.Signals[i]; i%2 == 0 {
					o.Available, o.Capacity = 0, 0
				} else {
					o.Err = nil
				}
			}
			s.Reclaims = s.Reclaims[:1]
		},
		Refused: []string{"Taken", "WallTime", "Pods[]", "Pods[].UID", "Pods[].QOS", "InFlight[]", "InFlight[].UID",
			"Requests[]", "Requests[].UID"},
		Exempt: map[string]string{
			"Signals":        "has the observation of no signal",
			"Signals[0]":     "is the observation of no signal",
			"Signals[0].Err": "is the observation of no signal",
		},
	}
}

func TestNoFieldOfASnapshotIsLost(t *testing.T) { encoding().Check(t) }

// TestSnapshotIsReadable shows what an encoded snapshot looks like.
func TestSnapshotIsReadable(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	s := Snapshot{Taken: at, WallTime: at.Add(time.Hour), Signals: Unobserved(), Layout: Layout{Known: true}}
	s.Signals[MemoryAvailable] = Observation{Available: 0, Capacity: 100, At: at.Add(59 * time.Minute)}
	s.Signals[PIDAvailable] = Observation{Err: ErrNotReported}
	usage := unknownUsage()
	usage.Memory, usage.LocalStorage = 50, 0
	usage.Containers = []ContainerUsage{{Name: "c", Memory: Unknown, WritableLayer: fsOf(2, Unknown), Logs: fsOf(0, 0)}}
	s.Pods = []Pod{{Facts: &Facts{UID: "1", Namespace: "ns", Name: "a", QOS: v1.PodQOSBurstable}, Usage: usage}}
	s.InFlight = []InFlight{{UID: "2", Signal: MemoryAvailable, Started: at, Expected: Release{Memory: 7}}}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "taken": "2026-01-01T12:00:00Z",
  "wallTime": "2026-01-01T13:00:00Z",
  "signals": {
    "memory.available": {
      "available": 0,
      "capacity": 100,
      "at": "2026-01-01T12:59:00Z"
    },
    "pid.available": {
      "error": {
        "reason": "NotReported",
        "message": "the stats summary has no figures for it"
      }
    }
  },
  "layout": {
    "known": true
  },
  "pods": [
    {
      "uid": "1",
      "namespace": "ns",
      "name": "a",
      "priority": 0,
      "qosClass": "Burstable",
      "usage": {
        "memoryBytes": 50,
        "localStorageBytes": 0,
        "containers": [
          {
            "name": "c",
            "writableLayer": {
              "bytes": 2
            },
            "logs": {
              "bytes": 0,
              "inodes": 0
            }
          }
        ]
      },
      "imageBytes": 0
    }
  ],
  "inFlight": [
    {
      "uid": "2",
      "signal": "memory.available",
      "state": "Stopping",
      "started": "2026-01-01T12:00:00Z",
      "expected": {
        "memoryBytes": 7
      }
    }
  ]
}`
	if d := cmp.Diff(want, string(data)); d != "" {
		t.Error(d)
	}
}

// TestDetailedPodsAreDecoded: what is derived from API objects equals the original.
func TestDetailedPodsAreDecoded(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	s := Snapshot{Taken: at, WallTime: at, Signals: Unobserved()}
	for i, pod := range []*v1.Pod{detailedPod(), examplePod()} {
		pod.CreationTimestamp = metav1.NewTime(at.Add(-time.Hour).In(time.FixedZone("", 3600)))
		facts := NewFacts(pod, true)
		facts.UID = types.UID(fmt.Sprint(i))
		s.Pods = append(s.Pods, Pod{Facts: facts, Images: Unknown})
	}
	got, err := recoded(s)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, s) {
		t.Error(cmp.Diff(s, got, cmp.Exporter(func(reflect.Type) bool { return true })))
	}
}

// TestErrorsComeBack: errors.Is finds the reasons again, and the text is the same up to its greatest length.
func TestErrorsComeBack(t *testing.T) {
	for _, want := range []error{
		ErrNotReported, ErrNoPodsCgroup, ErrImplausible, errNeverObserved, errors.New("other"), errors.New(""),
		fmt.Errorf("the stats summary failed: %w", ErrNotReported), errors.New(strings.Repeat("x", 4095) + "ä"),
	} {
		data, err := json.Marshal(Observation{Err: want})
		if err != nil {
			t.Fatal(err)
		}
		var got Observation
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if got.Known() || got.Err.Error() != strings.TrimSuffix(want.Error(), "ä") {
			t.Errorf("%v, want %v", got.Err, want)
		}
		for _, r := range reasons {
			if errors.Is(got.Err, r.err) != errors.Is(want, r.err) {
				t.Errorf("%v is %s: %v", want, r.name, errors.Is(got.Err, r.err))
			}
		}
	}
}

func TestSnapshotsThatAreRefused(t *testing.T) {
	snapshot := func(fields string) string {
		return `{"taken":"2026-01-01T00:00:00Z","wallTime":"2026-01-01T00:00:00Z","signals":{}` + fields + `}`
	}
	pod := func(uid, fields string) string {
		return `{"uid":"` + uid + `","namespace":"","name":"","priority":0,"qosClass":"Burstable"` + fields + `}`
	}
	pods := func(list ...string) string { return snapshot(`,"pods":[` + strings.Join(list, ",") + `]`) }
	signals := func(text string) string { return strings.Replace(snapshot(""), "{}", text, 1) }
	const flight = `{"uid":"a","state":"Stopped"}`
	for name, test := range map[string]struct{ text, want string }{
		"pods":       {pods(strings.Repeat(`{},`, MaxPods) + `{}`), "pods: more than 4096 elements"},
		"containers": {pods(`{"containers":[` + strings.Repeat(`{},`, 1<<10) + `{}]}`), "pods[0].containers: more than 1024"},
		"volumes":    {pods(`{"usage":{"volumes":[` + strings.Repeat(`{},`, 1<<10) + `{}]}}`), "pods[0].usage.volumes: more"},
		"in flight":  {snapshot(`,"inFlight":[` + strings.Repeat(`{},`, MaxPods) + `{}]`), "inFlight: more than 4096"},
		"requests":   {snapshot(`,"requests":[` + strings.Repeat(`{},`, MaxPods) + `{}]`), "requests: more than 4096"},
		"reclaims":   {snapshot(`,"reclaims":[` + strings.Repeat(`{},`, 1<<10) + `{}]`), "reclaims: more than 1024"},
		"in total": {
			pods(strings.Repeat(`{"volumes":[`+strings.Repeat(`"",`, 1<<10-1)+`""]},`, 1<<10) + `{}`),
			"more than 1048576 elements in the document",
		},
		"bytes": {strings.Repeat(" ", 64<<20+1), "the document has 67108865 bytes, more than 67108864"},
		"text": {
			snapshot(`,"x":"` + strings.Repeat("x", 2<<20+1) + `"`), "x: a string of 2097153 bytes, more than",
		},
		"no UID": {pods(pod("", "")), `pods[0].uid: "": must be unique and not empty`},
		"UID": {
			pods(pod("a", ""), pod("b", ""), pod("a", "")), `pods[2].uid: "a": must be unique and not empty; pods[0]`,
		},
		"absent UID": {pods(`{"namespace":"","name":"","priority":0,"qosClass":"Burstable"}`), "pods[0].uid: is missing"},
		"QoS": {
			pods(strings.Replace(pod("a", ""), "Burst", "B", 1)), `pods[0].qosClass: "Bable": must be one of ["Gua`,
		},
		"priority": {
			pods(strings.Replace(pod("a", ""), ":0", ":3000000000", 1)), "priority: 3000000000: must be a whole",
		},
		"annotation": {pods(pod("a", `,"annotations":{"b":1}`)), "pods[0].annotations.b: 1: must be a string"},
		"quantity": {
			pods(pod("a", `,"localStorageLimits":{"pod":{"text":"1"}}`)), "localStorageLimits.pod.bytes: is missing",
		},
		"limit": {
			pods(pod("a", `,"localStorageLimits":{"emptyDirs":[{"name":"b"}]}`)), "emptyDirs[0].limit: is missing",
		},
		"value": {
			pods(pod("a", `,"cgroup":{"processes":{"amount":1}}`)), "pods[0].cgroup.processes.known: is missing",
		},
		"volume":        {pods(pod("a", `,"usage":{"volumes":[{"bytes":1}]}`)), "pods[0].usage.volumes[0].name: is missing"},
		"container":     {pods(pod("a", `,"containers":[{}]`)), "pods[0].containers[0].name: is missing"},
		"in flight UID": {snapshot(`,"inFlight":[` + flight + "," + flight + `]`), `inFlight[1].uid: "a": must be unique`},
		"killer":        {snapshot(`,"requests":[{"uid":"a","killer":"Other"}]`), `unknown killer "Other": must be one`},
		"killer number": {snapshot(`,"requests":[{"uid":"a","killer":1}]`), "killer"},
		"submitted":     {snapshot(`,"requests":[{"uid":"a","submitted":"yes"}]`), "submitted"},
		"request UID":   {snapshot(`,"requests":[{"uid":"a"},{"uid":"a"}]`), `requests[1].uid: "a": must be unique`},
		"request grace": {
			snapshot(`,"requests":[{"uid":"a","gracePeriodSeconds":0}]`), "requests[0].gracePeriodSeconds: 0: must be at",
		},
		"state": {
			snapshot(`,"inFlight":[{"uid":"a","state":"x"}]`), `[0].state: unknown state of an eviction "x": must be one of St`,
		},
		"device": {
			snapshot(`,"reclaims":[{"device":"CD"}]`), `reclaims[0].device: unknown device "CD": must be one of Node, Image`,
		},
		"release": {
			snapshot(`,"inFlight":[{"uid":"a","state":"Failed","expected":{"devices":{"CD":{}}}}]`),
			`devices: unknown name "CD"`,
		},
		"reclaims twice": {
			snapshot(`,"reclaims":[{"device":"Node"},{"device":"Node"}]`),
			"reclaims[1]: device Node, inodes false: must be unique",
		},
		"signal":    {signals(`{"swap":{}}`), `signals: unknown name "swap": must be one of memory.available, alloc`},
		"no signal": {signals(`{"none":{}}`), `signals: unknown name "none"`},
		"signals":   {signals(`[]`), `signals: []: must be an object`},
		"amounts": {
			signals(`{"pid.available":{"capacity":1}}`), "signals.pid.available: an observation must have either",
		},
		"amount and error": {
			signals(`{"pid.available":{"available":1,"error":{"message":""}}}`), "an observation must have either",
		},
		"reason": {
			signals(`{"pid.available":{"error":{"reason":"x","message":""}}}`),
			`signals.pid.available.error.reason: unknown reason "x": must be one of NotReported, NoPodsCgroup`,
		},
		"in flight for": {
			snapshot(`,"inFlight":[{"uid":"a","state":"Failed","signal":"swap"}]`),
			`[0].signal: unknown signal "swap": must be one of`,
		},
		"taken": {
			strings.Replace(snapshot(""), "2026", "2201", 1), "taken: 2201-01-01 00:00:00 +0000 UTC: must be in the years",
		},
		"wall time": {`{"taken":"2026-01-01T00:00:00Z","signals":{}}`, "wallTime: is missing"},
		"field":     {snapshot(`,"nodes":1`), `unknown field "nodes": must be one of taken, wallTime, signals`},
		"nothing":   {``, "snapshot: unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Decode([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestWhatIsAbsentIsUnknown: a snapshot without observations and amounts is decoded as one in which they are unknown.
func TestWhatIsAbsentIsUnknown(t *testing.T) {
	s, err := Decode([]byte(`{"taken":"2026-01-01T00:00:00Z","wallTime":"2026-01-01T00:00:00Z","signals":{},
		"pods":[{"uid":"a","namespace":"","name":"","priority":0,"qosClass":"Burstable","cgroup":{},
		"usage":{"containers":[{"name":"c"}]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range AllSignals() {
		if s.Signals[signal].Known() {
			t.Errorf("%s is %+v", signal, s.Signals[signal])
		}
	}
	p := &s.Pods[0]
	_, disk := p.Disk(Measure{WritableLayers: true, Logs: true, Volumes: true, Images: true})
	_, inodes := p.Inodes(Measure{WritableLayers: true, Logs: true, Volumes: true})
	if disk || inodes || p.Memory().Known || p.AnonymousMemory().Known || p.PIDs().Known ||
		plausible(p.Usage.LocalStorage) || plausible(p.Usage.Containers[0].Memory) {
		t.Errorf("disk known: %t, inodes known: %t, %+v %+v", disk, inodes, p.Usage, p.Cgroup)
	}
}

// TestUnknownEnumerationsAreNotEncoded: there is no name for them.
func TestUnknownEnumerationsAreNotEncoded(t *testing.T) {
	for _, v := range []any{NumSignals, NumDevices, Failed + 1} {
		if data, err := json.Marshal(v); err == nil {
			t.Errorf("%v: %s", v, data)
		}
	}
}

// FuzzDecodeSnapshot: whatever is read, nothing panics; what is accepted is bounded, and is written again without loss.
func FuzzDecodeSnapshot(f *testing.F) {
	full := encoding().Full()
	empty := Snapshot{Taken: full.Taken, WallTime: full.WallTime, Signals: Unobserved()}
	for _, s := range []Snapshot{full, empty} {
		data, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	const head = `{"taken":"2026-01-01T00:00:00Z","wallTime":"2026-01-01T00:00:00.5Z",`
	for _, text := range []string{
		`"signals":{"pid.available":{"available":-1,"capacity":1},"imagefs.available":{"error":{"message":"a"}}}}`,
		`"signals":{},"pods":[{"uid":"a","namespace":"b","name":"c","priority":-1,"qosClass":"Guaranteed","imageBytes":1}]}`,
		`"signals":{},"inFlight":[{"uid":"a","state":"Stopped","expected":{"devices":{"Image":{"inodes":1}}}}]}`,
		`"signals":{},"requests":[{"uid":"a","plugins":["b"],"gracePeriodSeconds":1},{"uid":"c","forced":true,` +
			`"killer":"DeleteAPI","submitted":true}]}`,
		`"signals":{},"reclaims":[{"device":"Node","error":{"reason":"Implausible","message":""},"got":{"freed":-1}}]}`,
	} {
		f.Add([]byte(head + text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Decode(data)
		if err != nil {
			return
		}
		if len(s.Pods) > MaxPods || len(s.InFlight) > MaxPods || len(s.Requests) > MaxPods {
			t.Fatalf("%d pods, %d in flight, %d requests", len(s.Pods), len(s.InFlight), len(s.Requests))
		}
		got, err := recoded(*s)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, *s) {
			t.Fatalf("%+v, decoded and encoded again: %+v", *s, got)
		}
	})
}

// TestKillersAreNames: a request is encoded with the name of its killer, and the pod workers are the default.
func TestKillersAreNames(t *testing.T) {
	for killer, want := range map[Killer]string{
		PodWorker: `{"uid":"a"}`, EvictionAPI: `{"uid":"a","killer":"EvictionAPI","submitted":true}`,
		DeleteAPI: `{"uid":"a","killer":"DeleteAPI","submitted":true}`,
	} {
		r := Request{UID: "a", Killer: killer, Submitted: killer != PodWorker}
		data, err := json.Marshal(r)
		if err != nil || string(data) != want {
			t.Errorf("%s: %s (%v), want %s", killer, data, err, want)
		}
		var got Request
		if err := json.Unmarshal(data, &got); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s is read as %+v (%v)", data, got, err)
		}
	}
	if data, err := json.Marshal(Request{UID: "a", Killer: 3}); err == nil || Killer(3).String() != "unknown" {
		t.Errorf("a killer that does not exist is encoded: %s", data)
	}
}
