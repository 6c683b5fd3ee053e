package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// slot is a place for a pod. It is free as soon as the deletion of its pod was requested.
type slot struct {
	number int
	static bool
	taken  bool
	name   string
	// generation is the number of the name that was used last.
	generation int
	// nameFreeAt is when the name may be used again at the earliest.
	nameFreeAt time.Duration
	created    time.Duration
	shape      Shape
	filled     bool
	revision   int
}

// terminating is a pod that is being deleted.
type terminating struct {
	slot *slot
	name string
	// by is when it must have ended, if the node works correctly.
	by    time.Duration
	shape Shape
	// starting is true if it may have been deleted before its processes handled signals.
	starting bool
}

// handlesSignalsAfter is the age from which on the processes of a pod certainly handle signals: its containers may have
// had to wait for a kubelet or a runtime.
const handlesSignalsAfter = 25 * time.Second

// stopTime is how long a pod may take to stop within that grace period.
func stopTime(shape Shape, starting bool, grace int64) time.Duration {
	if starting && shape.Body != VolumeMissing {
		return time.Duration(grace) * time.Second
	}
	return time.Duration(shape.StopTime(grace)) * time.Second
}

// generator tracks which pods there would be if each action took effect in time. It uses that only to choose actions
// that are possible.
type generator struct {
	r           *rand.Rand
	config      Config
	now         time.Duration
	slots       []*slot
	statics     []*slot
	terminating []terminating
	actions     []Action
}

// wait lets some time pass, between low and high.
func (g *generator) wait(low, high time.Duration) {
	g.now += low + time.Duration(g.r.Int64N(int64(high-low)))
}

func (g *generator) act(a Action) {
	a.At = g.now
	g.actions = append(g.actions, a)
}

// begin creates a pod for every slot.
func (g *generator) begin() {
	for _, s := range g.statics {
		g.write(s)
	}
	for _, s := range g.slots {
		g.wait(50*time.Millisecond, 500*time.Millisecond)
		g.create(s)
	}
}

// end shortens the grace periods of terminations for which the test would otherwise wait too long.
func (g *generator) end() {
	for _, l := range g.terminating {
		if l.by > g.now+settleTime {
			g.act(Action{Kind: Hasten, Pod: l.name, Grace: 1 + g.r.Int64N(5)})
		}
	}
}

// step adds one action that is possible.
func (g *generator) step() {
	g.terminating = slices.DeleteFunc(g.terminating, func(l terminating) bool { return l.by <= g.now })
	free, taken := split(g.slots)
	choices := []weighted[func()]{
		{3 * len(free), func() { g.create(choose(g.r, free)) }},
		{14, g.on(taken, func(s *slot) { g.remove(s, Delete) })},
		{7, g.on(taken, g.forceDelete)},
		{8, g.on(taken, func(s *slot) { g.remove(s, Evict) })},
		{12, g.on(slices.DeleteFunc(slices.Clone(taken), cannotFill), g.fill)},
		{8, g.hasten},
		{4, g.forceTerminating},
	}
	if len(g.statics) > 0 {
		_, written := split(g.statics)
		choices = append(choices, []weighted[func()]{
			{8, func() { g.write(choose(g.r, g.statics)) }},
			{4, g.on(written, g.removeManifest)},
			{3, g.on(written, func(s *slot) { g.act(Action{Kind: DeleteMirror, Pod: s.name}) })},
		}...)
	}
	pick(g.r, choices)()
}

func cannotFill(s *slot) bool { return !s.shape.Fillable || s.filled }

func split(slots []*slot) (free, taken []*slot) {
	for _, s := range slots {
		if s.taken {
			taken = append(taken, s)
		} else {
			free = append(free, s)
		}
	}
	return free, taken
}

func choose[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// on returns a function that calls do with one of the slots. Without slots it does nothing.
func (g *generator) on(slots []*slot, do func(*slot)) func() {
	return func() {
		if len(slots) > 0 {
			do(choose(g.r, slots))
		}
	}
}

// create adds the creation of a pod for the slot, with the name of the one before if that is free.
func (g *generator) create(s *slot) {
	if s.generation == 0 || s.nameFreeAt > g.now || oneIn(g.r, 3) {
		s.generation++
		s.nameFreeAt = 0
	}
	s.name = fmt.Sprintf("pod-%02d-%d", s.number, s.generation)
	s.taken, s.filled, s.shape, s.created = true, false, randomShape(g.r), g.now
	g.act(Action{Kind: Create, Pod: s.name, Shape: s.shape})
}

// remove adds the deletion or eviction of the pod, with its own grace period or another.
func (g *generator) remove(s *slot, kind Kind) {
	grace := OwnGrace
	if oneIn(g.r, 3) {
		grace = choose(g.r, graces[1:])
	}
	g.act(Action{Kind: kind, Pod: s.name, Grace: grace})
	if grace == OwnGrace {
		grace = s.shape.Grace
	}
	starting := g.starting(s)
	by := g.now + stopTime(s.shape, starting, grace) + 3*time.Second
	g.terminating = append(g.terminating, terminating{slot: s, name: s.name, by: by, shape: s.shape, starting: starting})
	// It takes longer when the kubelet is killed meanwhile.
	s.taken, s.nameFreeAt = false, by+30*time.Second
}

// forceDelete adds the deletion of the pod from the API. On the node it may still use its own grace period.
func (g *generator) forceDelete(s *slot) {
	if !g.endsInTime(s.shape, g.starting(s)) {
		return
	}
	g.act(Action{Kind: ForceDelete, Pod: s.name})
	s.taken, s.nameFreeAt = false, 0
}

// endsInTime is true if a pod whose grace period can no longer be shortened would end in time.
func (g *generator) endsInTime(shape Shape, starting bool) bool {
	return g.now+stopTime(shape, starting, shape.Grace) <= g.config.Time+settleTime
}

func (g *generator) starting(s *slot) bool { return g.now-s.created < handlesSignalsAfter }

func (g *generator) forceTerminating() {
	if len(g.terminating) == 0 {
		return
	}
	i := g.r.IntN(len(g.terminating))
	l := g.terminating[i]
	if !g.endsInTime(l.shape, l.starting) {
		return
	}
	g.act(Action{Kind: ForceDelete, Pod: l.name})
	g.terminating = slices.Delete(g.terminating, i, i+1)
	if l.slot.name == l.name && !l.slot.taken {
		l.slot.nameFreeAt = 0
	}
}

// hasten adds another deletion of a pod, with a shorter grace period.
func (g *generator) hasten() {
	slow := slices.DeleteFunc(slices.Clone(g.terminating), func(l terminating) bool { return l.by < g.now+10*time.Second })
	if len(slow) == 0 {
		return
	}
	chosen := choose(g.r, slow)
	grace := 1 + g.r.Int64N(int64((chosen.by-g.now)/time.Second)-5)
	g.act(Action{Kind: Hasten, Pod: chosen.name, Grace: grace})
	for i := range g.terminating {
		if g.terminating[i].name == chosen.name {
			g.terminating[i].by = g.now + time.Duration(grace+3)*time.Second
		}
	}
}

func (g *generator) fill(s *slot) {
	g.act(Action{Kind: Fill, Pod: s.name})
	s.filled = true
}

// write adds a manifest that starts or replaces a static pod. Sometimes it is the manifest that was removed.
func (g *generator) write(s *slot) {
	if s.revision == 0 || s.taken || !oneIn(g.r, 3) {
		s.revision++
		s.shape = randomStatic(g.r)
	}
	s.taken, s.name = true, fmt.Sprintf("static-%d", s.number)
	g.act(Action{Kind: WriteManifest, Pod: s.name, Shape: s.shape, Revision: s.revision})
}

func (g *generator) removeManifest(s *slot) {
	g.act(Action{Kind: RemoveManifest, Pod: s.name})
	s.taken = false
}
