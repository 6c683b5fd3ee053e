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
	// Delete is a graceful deletion; of a pod that is being deleted already, one
	// with a shorter grace period (Hasten).
	Delete Kind = "delete"
	Hasten Kind = "hasten"
	// ForceDelete removes a pod from the API at once; the agent is not asked.
	ForceDelete Kind = "force delete"
	// Evict uses the API of evictions.
	Evict Kind = "evict"
	// Fill makes a pod write more than its emptyDir may hold: the agent evicts it.
	Fill Kind = "fill"
	// WriteManifest starts, or replaces, a static pod.
	WriteManifest  Kind = "write manifest"
	RemoveManifest Kind = "remove manifest"
	// DeleteMirror deletes the mirror pod of a static pod, which is to come back.
	DeleteMirror Kind = "delete mirror"
	KillKubelet  Kind = "kill kubelet"
	KillRuntime  Kind = "kill runtime"
	// KillBoth ends both at once; the runtime comes back first.
	KillBoth Kind = "kill both"
)

// Kills says whether the action ends a process of the node. These are done one
// after the other, beside all others.
func (k Kind) Kills() bool { return k == KillKubelet || k == KillRuntime || k == KillBoth }

// OwnGrace as Action.Grace leaves the grace period to the pod.
const OwnGrace int64 = -1

// Action is one thing to do. The zero value of what its kind does not need is
// left.
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
	// Down is how long the process stays away after it was killed.
	Down time.Duration
}

// String is the action as a line of a log, without its time.
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

// Config says how much happens.
type Config struct {
	// Pods is how many there are at a time, without those that are being
	// deleted; Static, how many static pods beside them.
	Pods, Static int
	// Time is how long it goes on.
	Time time.Duration
}

// settling is how long a termination may go on after the last action.
const settling = 35 * time.Second

// Plan is what to do: the same for the same arguments, in the order of time.
func Plan(seed uint64, config Config) []Action {
	g := &generator{r: rand.New(rand.NewPCG(seed, 0)), config: config}
	for i := range config.Pods {
		g.slots = append(g.slots, &slot{number: i})
	}
	for i := range config.Static {
		g.statics = append(g.statics, &slot{number: i, static: true})
	}
	g.begin()
	for g.wait(100*time.Millisecond, 1200*time.Millisecond); g.now < config.Time; g.wait(100*time.Millisecond, 1200*time.Millisecond) {
		g.step()
	}
	g.now = config.Time
	g.end()
	g.kills()
	slices.SortStableFunc(g.actions, func(a, b Action) int { return int(a.At - b.At) })
	return g.actions
}

// kills are a stream of their own, so that they come at any moment of the
// others. The first three are of each kind.
func (g *generator) kills() {
	r := g.r
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(r.Int64N(int64(high-low))) }
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
