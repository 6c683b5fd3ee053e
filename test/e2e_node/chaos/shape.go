package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Body is what the main container of a pod does.
type Body string

// Bodies of pods. A pod with one of the last three is never Ready.
const (
	// Idle runs until it receives SIGTERM, and then stops at once.
	Idle Body = "idle"
	// Stubborn runs until it is killed.
	Stubborn Body = "stubborn"
	// Succeeds exits with code 0.
	Succeeds Body = "succeeds"
	// Fails exits with FailureCode.
	Fails Body = "fails"
	// Crashes exits with code 1, again after each restart.
	Crashes Body = "crashes"
	// InitNeverEnds has an init container that never ends.
	InitNeverEnds Body = "init-never-ends"
	// PostStartNeverEnds has a postStart hook that never ends.
	PostStartNeverEnds Body = "poststart-never-ends"
	// VolumeMissing has a volume of a ConfigMap that does not exist.
	VolumeMissing Body = "volume-missing"
)

// FailureCode is the exit code of a pod that Fails.
const FailureCode = 3

// Hook is what the main container's preStop hook does.
type Hook string

// Hooks before a container is stopped.
const (
	NoHook Hook = "none"
	// NoteHook writes a note and ends.
	NoteHook Hook = "note"
	// HangHook writes a note and never ends.
	HangHook Hook = "hang"
	// SleepHook is the sleep action, for Shape.Seconds.
	SleepHook Hook = "sleep"
)

// Shape describes a pod.
type Shape struct {
	Body Body
	Hook Hook
	// Restart is the restart policy.
	Restart v1.RestartPolicy
	// Grace is the pod's own grace period, in seconds.
	Grace int64
	// Seconds is how long a body runs that exits by itself, and how long the SleepHook sleeps.
	Seconds int64
	// ProbeSeconds is the period of its probes, and half their time-out.
	ProbeSeconds int64
	// Class of the pod's resources: BestEffort, Burstable or Guaranteed.
	Class v1.PodQOSClass
	// Fillable pods exceed the limit of their emptyDir when FillFile exists. The kubelet evicts them for that.
	Fillable bool
	Parts    Parts
}

// Parts are what a pod can have beside its main container.
type Parts struct {
	Sidecar bool
	Init    bool
	Probes  bool
	// Volumes are a ConfigMap and a projected volume. Static pods, which must not refer to API objects, have a downward
	// API volume.
	Volumes bool
}

// probeSeconds is the period of probes on a node that is not slow.
const probeSeconds = 5

// graces are the grace periods of pods, in seconds.
var graces = []int64{0, 1, 5, 30, 120}

// weighted is a choice that is taken with a probability proportional to its weight.
type weighted[T any] struct {
	weight int
	value  T
}

func pick[T any](r *rand.Rand, choices []weighted[T]) T {
	total := 0
	for _, choice := range choices {
		total += choice.weight
	}
	at := r.IntN(total)
	for _, choice := range choices {
		if at -= choice.weight; at < 0 {
			return choice.value
		}
	}
	panic("a weight is negative")
}

func oneIn(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// randomShape returns a pod for the API server.
func randomShape(r *rand.Rand) Shape {
	s := Shape{
		Body: pick(r, []weighted[Body]{
			{30, Idle}, {20, Stubborn}, {10, Succeeds}, {10, Fails}, {6, Crashes}, {6, InitNeverEnds},
			{6, PostStartNeverEnds}, {4, VolumeMissing},
		}),
		Hook:         pick(r, []weighted[Hook]{{30, NoHook}, {25, NoteHook}, {25, HangHook}, {20, SleepHook}}),
		Restart:      pick(r, []weighted[v1.RestartPolicy]{{60, v1.RestartPolicyAlways}, {40, v1.RestartPolicyNever}}),
		Grace:        graces[r.IntN(len(graces))],
		ProbeSeconds: probeSeconds,
		Class: pick(r, []weighted[v1.PodQOSClass]{
			{50, v1.PodQOSBestEffort}, {30, v1.PodQOSBurstable}, {20, v1.PodQOSGuaranteed},
		}),
		Parts: Parts{Sidecar: oneIn(r, 4), Init: oneIn(r, 3), Probes: oneIn(r, 3), Volumes: oneIn(r, 2)},
	}
	s.Seconds = 1 + r.Int64N(15)
	s.Fillable = s.Body == Idle && s.Class != v1.PodQOSGuaranteed && oneIn(r, 2)
	return s.consistent()
}

// randomStatic returns a static pod. Its grace period is short, since no request can shorten it later.
func randomStatic(r *rand.Rand) Shape {
	s := randomShape(r)
	s.Body = pick(r, []weighted[Body]{{50, Idle}, {50, Stubborn}})
	s.Grace = graces[r.IntN(4)]
	s.Fillable = false
	s.Restart = v1.RestartPolicyAlways
	return s.consistent()
}

// consistent changes the shape to one that the API server accepts and whose outcome is known.
func (s Shape) consistent() Shape {
	switch s.Body {
	case Succeeds, Fails:
		s.Restart = v1.RestartPolicyNever
	case Crashes, InitNeverEnds, PostStartNeverEnds, VolumeMissing:
		s.Restart = v1.RestartPolicyAlways
	case Idle, Stubborn:
	}
	if s.Fillable {
		s.Restart = v1.RestartPolicyAlways
	}
	if s.Hook == SleepHook {
		// A hook may not sleep longer than the grace period.
		if s.Seconds = min(s.Seconds, s.Grace); s.Grace == 0 {
			s.Hook, s.Seconds = NoHook, 1
		}
	}
	return s
}

// MainContainer is the name of the container that every pod has.
const MainContainer = "main"

// Runs is the name of a container that runs as long as the pod does, "" if there is none at times.
func (s Shape) Runs() string {
	switch s.Body {
	case Idle, Stubborn, PostStartNeverEnds:
		return MainContainer
	case InitNeverEnds:
		return holdsContainer
	case Succeeds, Fails, Crashes, VolumeMissing:
	}
	return ""
}

// StopTime returns how many seconds the pod takes to stop with the given grace period.
func (s Shape) StopTime(grace int64) int64 {
	switch {
	case s.Body == VolumeMissing:
		return 0
	case s.Body == Stubborn, s.Hook == HangHook:
		return grace
	case s.Hook == SleepHook:
		return min(grace, s.Seconds)
	}
	return 0
}

// String returns the shape in words.
func (s Shape) String() string {
	words := []string{
		string(s.Body), string(s.Restart), fmt.Sprintf("grace %d s", s.Grace), "hook " + string(s.Hook), string(s.Class),
	}
	for _, part := range []struct {
		has  bool
		name string
	}{
		{s.Parts.Sidecar, "sidecar"}, {s.Parts.Init, "init"}, {s.Parts.Probes, "probes"}, {s.Parts.Volumes, "volumes"},
		{s.Fillable, "fillable"},
	} {
		if part.has {
			words = append(words, part.name)
		}
	}
	return strings.Join(words, ", ")
}
