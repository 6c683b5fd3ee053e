package snapshot

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/strictjson"
)

// A Snapshot is encoded by package encoding/json, without loss: what policy.Decide does with a snapshot that was
// written and read again is the same as with the original. Only errors are encoded as text (encodedError). The names
// in the JSON are those of the types here and in encode_pod.go whose names begin with "encoded", and stay as they are
// when fields of the program are renamed.

// MaxPods is how many pods an encoded snapshot, or an encoded state of package policy, may have: far more than a node
// can run.
const MaxPods = 1 << 12

// limits are far above what a snapshot can come to. An annotation of 256 KiB may have six times that length when it is
// encoded.
var limits = strictjson.Limits{
	Bytes: 64 << 20, String: 2 << 20, Depth: 8, Elements: 1 << 10, Total: 1 << 20,
	Fields: map[string]int{"pods": MaxPods, "inFlight": MaxPods, "requests": MaxPods},
}

// A snapshot was taken by a clock that is set to one of these years.
const minTakenYear, maxTakenYear = 1970, 2200

// Decode decodes a snapshot that may come from anywhere. An error names the field that is wrong, its value, and what is
// allowed.
func Decode(data []byte) (*Snapshot, error) {
	s := &Snapshot{}
	if err := strictjson.Unmarshal(data, s, limits); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return s, nil
}

func (s *Snapshot) validate() error {
	if year := s.Taken.Year(); year < minTakenYear || year > maxTakenYear {
		return fmt.Errorf("taken: %s: must be in the years from %d to %d", s.Taken, minTakenYear, maxTakenYear)
	}
	uids := map[types.UID]int{}
	for i := range s.Pods {
		p := &s.Pods[i]
		if other, ok := uids[p.UID]; ok || p.UID == "" {
			return fmt.Errorf("pods[%d].uid: %q: must be unique and not empty; pods[%d] has it", i, p.UID, other)
		}
		uids[p.UID] = i
		if !slices.Contains(qosClasses, p.QOS) {
			return fmt.Errorf("pods[%d].qosClass: %q: must be one of %q", i, p.QOS, qosClasses)
		}
	}
	clear(uids)
	for i := range s.InFlight {
		uid := s.InFlight[i].UID
		if other, ok := uids[uid]; ok || uid == "" {
			return fmt.Errorf("inFlight[%d].uid: %q: must be unique and not empty; inFlight[%d] has it", i, uid, other)
		}
		uids[uid] = i
	}
	clear(uids)
	for i := range s.Requests {
		r := &s.Requests[i]
		if other, ok := uids[r.UID]; ok || r.UID == "" {
			return fmt.Errorf("requests[%d].uid: %q: must be unique and not empty; requests[%d] has it", i, r.UID, other)
		}
		uids[r.UID] = i
		if grace := r.GraceSeconds; grace != nil && *grace < 1 {
			return fmt.Errorf("requests[%d].gracePeriodSeconds: %d: must be at least 1", i, *grace)
		}
	}
	for i := range s.Reclaims {
		r := &s.Reclaims[i]
		same := func(o Reclaim) bool { return o.Device == r.Device && o.Inodes == r.Inodes }
		if j := slices.IndexFunc(s.Reclaims[:i], same); j >= 0 {
			return fmt.Errorf("reclaims[%d]: device %s, inodes %t: must be unique; reclaims[%d] has them", i,
				deviceName(int(r.Device)), r.Inodes, j)
		}
	}
	return nil
}

var qosClasses = []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}

type encodedSnapshot struct {
	// Taken lies on the monotonic clock of the agent, and so do all times but wallTime, those of observations, and
	// created. WallTime is the same instant for people.
	Taken          time.Time      `json:"taken"`
	WallTime       time.Time      `json:"wallTime"`
	Signals        encodedSignals `json:"signals"`
	Layout         encodedLayout  `json:"layout,omitzero"`
	Pods           []Pod          `json:"pods,omitzero"`
	InFlight       []InFlight     `json:"inFlight,omitzero"`
	Requests       []Request      `json:"requests,omitzero"`
	LastRelease    time.Time      `json:"lastRelease,omitzero"`
	Reclaims       []Reclaim      `json:"reclaims,omitzero"`
	RuntimeSilent  bool           `json:"runtimeSilent,omitzero"`
	MemoryRate     *Rate          `json:"memoryRate,omitempty"`
	LongMemoryRate *Rate          `json:"longMemoryRate,omitempty"`
	PodsAwaited    bool           `json:"podsAwaited,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	return json.Marshal(encodedSnapshot{
		Taken: s.Taken, WallTime: s.WallTime, Signals: s.Signals, Layout: encodedLayout(s.Layout), Pods: s.Pods,
		InFlight: s.InFlight, Requests: s.Requests, LastRelease: s.LastRelease, Reclaims: s.Reclaims,
		RuntimeSilent: s.RuntimeSilent, PodsAwaited: s.PodsAwaited, MemoryRate: s.MemoryRate,
		LongMemoryRate: s.LongMemoryRate,
	})
}

// UnmarshalJSON implements json.Unmarshaler. Decode validates the snapshot besides.
func (s *Snapshot) UnmarshalJSON(data []byte) error {
	e := encodedSnapshot{}
	err := strictjson.Decode(data, &e)
	*s = Snapshot{
		Taken: e.Taken, WallTime: e.WallTime, Signals: e.Signals, Layout: Layout(e.Layout), Pods: e.Pods,
		InFlight: e.InFlight, Requests: e.Requests, LastRelease: e.LastRelease, Reclaims: e.Reclaims,
		RuntimeSilent: e.RuntimeSilent, PodsAwaited: e.PodsAwaited, MemoryRate: e.MemoryRate,
		LongMemoryRate: e.LongMemoryRate,
	}
	return err
}

type encodedLayout struct {
	Known            bool `json:"known"`
	DedicatedImageFs bool `json:"dedicatedImageFs,omitzero"`
	SplitContainerFs bool `json:"splitContainerFs,omitzero"`
}

// encodedSignals is an object with an observation for each signal that was observed or could not be.
type encodedSignals [NumSignals]Observation

func signalName(i int) string { return Signal(i + 1).String() }

// MarshalJSON implements json.Marshaler.
func (s encodedSignals) MarshalJSON() ([]byte, error) {
	var list [NumSignals - 1]*Observation
	for i := range list {
		if o := &s[i+1]; *o != (Observation{Err: errNeverObserved}) {
			list[i] = o
		}
	}
	return strictjson.MarshalNamed(list[:], signalName)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *encodedSignals) UnmarshalJSON(data []byte) error {
	var list [NumSignals - 1]*Observation
	err := strictjson.UnmarshalNamed(data, list[:], signalName)
	*s = Unobserved()
	for i := range list {
		if list[i] != nil {
			s[i+1] = *list[i]
		}
	}
	return err
}

// encodedObservation has both amounts, or an error.
type encodedObservation struct {
	Available *int64        `json:"available,omitempty"`
	Capacity  *int64        `json:"capacity,omitempty"`
	At        time.Time     `json:"at,omitzero"`
	Err       *encodedError `json:"error,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (o Observation) MarshalJSON() ([]byte, error) {
	e := encodedObservation{At: o.At, Err: encodeError(o.Err)}
	if o.Known() {
		e.Available, e.Capacity = &o.Available, &o.Capacity
	}
	return json.Marshal(e)
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Observation) UnmarshalJSON(data []byte) error {
	var e encodedObservation
	if err := strictjson.Decode(data, &e); err != nil {
		return err
	}
	amounts := 0
	for _, amount := range []*int64{e.Available, e.Capacity} {
		if amount != nil {
			amounts++
		}
	}
	*o = Observation{At: e.At, Err: e.Err.decode()}
	switch {
	case o.Err != nil && amounts == 0:
	case o.Err == nil && amounts == 2:
		o.Available, o.Capacity = *e.Available, *e.Capacity
	default:
		return fmt.Errorf("an observation must have either available and capacity, or error")
	}
	return nil
}

type encodedInFlight struct {
	UID types.UID `json:"uid"`
	// Signal is absent for an eviction because of a limit of the pod or a request of plugins.
	Signal    Signal         `json:"signal,omitzero"`
	Requested bool           `json:"requested,omitzero"`
	Hard      bool           `json:"hard,omitzero"`
	State     InFlightState  `json:"state"`
	Started   time.Time      `json:"started,omitzero"`
	Changed   time.Time      `json:"changed,omitzero"`
	Deadline  time.Time      `json:"deadline,omitzero"`
	Expected  encodedRelease `json:"expected,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (f InFlight) MarshalJSON() ([]byte, error) {
	return json.Marshal(encodedInFlight{
		UID: f.UID, Signal: f.Signal, Requested: f.Requested, Hard: f.Hard, State: f.State, Started: f.Started,
		Changed: f.Changed, Deadline: f.Deadline, Expected: encodeRelease(f.Expected),
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *InFlight) UnmarshalJSON(data []byte) error {
	var e encodedInFlight
	err := strictjson.Decode(data, &e)
	*f = InFlight{
		UID: e.UID, Signal: e.Signal, Requested: e.Requested, Hard: e.Hard, State: e.State, Started: e.Started,
		Changed: e.Changed, Deadline: e.Deadline, Expected: e.Expected.decode(),
	}
	return err
}

// encodedRequest has the fields of Request.
type encodedRequest struct {
	UID          types.UID `json:"uid"`
	Plugins      []string  `json:"plugins,omitzero"`
	Scope        string    `json:"scope,omitzero"`
	Forced       bool      `json:"forced,omitzero"`
	GraceSeconds *int64    `json:"gracePeriodSeconds,omitempty"`
	Reason       string    `json:"reason,omitzero"`
	Since        time.Time `json:"since,omitzero"`
	Killer       Killer    `json:"killer,omitzero"`
	Submitted    bool      `json:"submitted,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (r Request) MarshalJSON() ([]byte, error) { return json.Marshal(encodedRequest(r)) }

// UnmarshalJSON implements json.Unmarshaler.
func (r *Request) UnmarshalJSON(data []byte) error {
	return strictjson.Decode(data, (*encodedRequest)(r))
}

// encodedRelease leaves out what gives nothing back.
type encodedRelease struct {
	Memory          Bytes          `json:"memoryBytes,omitzero"`
	CertainMemory   Bytes          `json:"certainMemoryBytes,omitzero"`
	AnonymousMemory Bytes          `json:"anonymousMemoryBytes,omitzero"`
	PIDs            PIDs           `json:"pids,omitzero"`
	Devices         encodedDevices `json:"devices,omitzero"`
}

// encodedDevices is an object with the devices that something comes free on.
type encodedDevices [NumDevices]encodedFsRelease

type encodedFsRelease struct {
	Bytes  Bytes  `json:"bytes,omitzero"`
	Inodes Inodes `json:"inodes,omitzero"`
}

func encodeRelease(r Release) encodedRelease {
	e := encodedRelease{
		Memory: r.Memory, CertainMemory: r.CertainMemory, AnonymousMemory: r.AnonymousMemory, PIDs: r.PIDs,
	}
	for d := range r.Devices {
		e.Devices[d] = encodedFsRelease(r.Devices[d])
	}
	return e
}

func (e *encodedRelease) decode() Release {
	r := Release{
		Memory: e.Memory, CertainMemory: e.CertainMemory, AnonymousMemory: e.AnonymousMemory, PIDs: e.PIDs,
	}
	for d := range e.Devices {
		r.Devices[d] = FsRelease(e.Devices[d])
	}
	return r
}

// MarshalJSON implements json.Marshaler.
func (d encodedDevices) MarshalJSON() ([]byte, error) {
	return strictjson.MarshalNamed(d[:], deviceName)
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *encodedDevices) UnmarshalJSON(data []byte) error {
	return strictjson.UnmarshalNamed(data, d[:], deviceName)
}

type encodedReclaim struct {
	Device   Device           `json:"device"`
	Inodes   bool             `json:"inodes,omitzero"`
	Running  bool             `json:"running,omitzero"`
	Started  time.Time        `json:"started,omitzero"`
	Finished time.Time        `json:"finished,omitzero"`
	Err      *encodedError    `json:"error,omitempty"`
	Got      encodedReclaimed `json:"got,omitzero"`
}

type encodedReclaimed struct {
	Containers int   `json:"containers,omitzero"`
	Images     int   `json:"images,omitzero"`
	Freed      int64 `json:"freed,omitzero"`
	Missing    int64 `json:"missing,omitzero"`
	More       bool  `json:"more,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (r Reclaim) MarshalJSON() ([]byte, error) {
	return json.Marshal(encodedReclaim{
		Device: r.Device, Inodes: r.Inodes, Running: r.Running, Started: r.Started, Finished: r.Finished,
		Err: encodeError(r.Err), Got: encodedReclaimed(r.Got),
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Reclaim) UnmarshalJSON(data []byte) error {
	var e encodedReclaim
	err := strictjson.Decode(data, &e)
	*r = Reclaim{
		Device: e.Device, Inodes: e.Inodes, Running: e.Running, Started: e.Started, Finished: e.Finished,
		Err: e.Err.decode(), Got: Reclaimed(e.Got),
	}
	return err
}
