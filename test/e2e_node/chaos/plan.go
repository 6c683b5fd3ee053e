package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind of an action.
type Kind string

// What is done to pods, to manifests of static pods, and to the node.
const (
	Create Kind = "create"
	// Delete is a graceful deletion, Hasten one of a pod that is being deleted already, with a shorter grace period.
	Delete Kind = "delete"
	Hasten Kind = "hasten"
	// ForceDelete removes a pod from the API at once, without waiting for the kubelet.
	ForceDelete Kind = "force delete"
	// Evict uses the eviction API.
	Evict Kind = "evict"
	// Fill makes a pod write more than the limit of its emptyDir: the kubelet evicts it.
	Fill Kind = "fill"
	// WriteManifest starts, or replaces, a static pod.
	WriteManifest  Kind = "write manifest"
	RemoveManifest Kind = "remove manifest"
	// DeleteMirror deletes the mirror pod of a static pod, which the kubelet creates again.
	DeleteMirror Kind = "delete mirror"
	KillKubelet  Kind = "kill kubelet"
	KillRuntime  Kind = "kill runtime"
	// KillBoth kills both at once; the runtime is started first.
	KillBoth Kind = "kill both"
)

// Kills returns whether the action kills a process of the node. These are done one after the other, and concurrently
// with all others.
func (k Kind) Kills() bool { return k == KillKubelet || k == KillRuntime || k == KillBoth }

// OwnGrace as Action.Grace stands for the grace period of the pod.
const OwnGrace int64 = -1

// Action is one action. Fields that its kind does not need are zero.
type Action struct {
	// At is when, since the beginning.
	At   time.Duration
	Kind Kind
	// Pod is a name; of a static pod, without the name of the node.
	Pod   string
	Shape Shape
	// Grace period of a deletion or eviction, in seconds, or OwnGrace.
	Grace int64
	// Revision of a manifest.
	Revision int
	// Down is the time between the kill of a process and its next start.
	Down time.Duration
}

// String returns the action as a line of a log, without its time.
func (a Action) String() string {
	text := string(a.Kind)
	if a.Pod != "" {
		text += " " + a.Pod
	}
	switch a.Kind {
	case Create:
		text += fmt.Sprintf(" (%v)", a.Shape)
	case WriteManifest:
		text += fmt.Sprintf(" revision %d (%v)", a.Revision, a.Shape)
	case Delete, Evict, Hasten:
		if a.Grace != OwnGrace {
			text += fmt.Sprintf(" grace %d s", a.Grace)
		}
	case KillKubelet, KillRuntime, KillBoth:
		text += fmt.Sprintf(", back after %v", a.Down)
	default:
	}
	return text
}

// Config bounds a plan.
type Config struct {
	// Pods is the number of pods at a time, without those that are being deleted, Static that of static pods beside them.
	Pods, Static int
	// Time is the time of the last action.
	Time time.Duration
}

// settleTime is how long a termination may take after the last action.
const settleTime = 35 * time.Second

// Plan returns the actions in the order of time. It is a pure function of its arguments.
func Plan(seed uint64, config Config) []Action {
	g := &generator{r: rand.New(rand.NewPCG(seed, 0)), config: config}
	for i := range config.Pods {
		g.slots = append(g.slots, &slot{number: i})
	}
	for i := range config.Static {
		g.statics = append(g.statics, &slot{number: i, static: true})
	}
	g.begin()
	pause := func() { g.wait(100*time.Millisecond, 1200*time.Millisecond) }
	for pause(); g.now < config.Time; pause() {
		g.step()
	}
	g.now = config.Time
	g.end()
	g.kills()
	slices.SortStableFunc(g.actions, func(a, b Action) int { return int(a.At - b.At) })
	return g.actions
}

// Slowed returns the actions for a node that is slower by the factor: with so much more time between them and between
// probes, and with longer grace periods, so that as many pods as before are being deleted at a time.
func Slowed(actions []Action, factor int64) []Action {
	slowed := slices.Clone(actions)
	for i := range slowed {
		a := &slowed[i]
		a.At *= time.Duration(factor)
		a.Down *= time.Duration(factor)
		if a.Grace != OwnGrace {
			a.Grace *= factor
		}
		a.Shape.Grace *= factor
		a.Shape.ProbeSeconds *= factor
	}
	return slowed
}

// kills adds the kills, at times that do not depend on the other actions. The first three are of each kind.
func (g *generator) kills() {
	r := g.r
	between := func(low, high time.Duration) time.Duration {
		return low + time.Duration(r.Int64N(int64(high-low)))
	}
	kill := func(at time.Duration, kind Kind, down time.Duration) {
		if at < g.config.Time {
			g.actions = append(g.actions, Action{At: at, Kind: kind, Down: down})
		}
	}
	first := []Kind{KillKubelet, KillRuntime, KillBoth}
	r.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
	for at := between(6*time.Second, 12*time.Second); at < g.config.Time; at += between(5*time.Second, 20*time.Second) {
		kind := pick(r, []weighted[Kind]{{55, KillKubelet}, {30, KillRuntime}, {15, KillBoth}})
		if len(first) > 0 {
			kind, first = first[0], first[1:]
		}
		down := between(0, 4*time.Second)
		kill(at, kind, down)
		if at += down; oneIn(r, 4) {
			// Once more while it starts.
			at += between(300*time.Millisecond, 3*time.Second)
			kill(at, KillKubelet, 0)
		}
	}
}
