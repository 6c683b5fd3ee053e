package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// slot is a place for a pod. A pod that was deleted leaves it at once.
type slot struct {
	number int
	static bool
	taken  bool
	name   string
	// generation is the number of the name that was used last.
	generation int
	// freeName says when the name may be used again at the earliest.
	freeName time.Duration
	created  time.Duration
	shape    Shape
	filled   bool
	revision int
}

// leaver is a pod that is being deleted.
type leaver struct {
	slot *slot
	name string
	// by is when it is gone at the latest, if the node does what it should.
	by    time.Duration
	shape Shape
	// young is whether it may have been deleted before it could hear signals.
	young bool
}

// adult is how old a pod is that certainly hears signals: its containers may
// have had to wait for a kubelet or a runtime.
const adult = 25 * time.Second

// lasting is how long a pod may take to stop within that grace period.
func lasting(shape Shape, young bool, grace int64) time.Duration {
	if young && shape.Body != HoldsVolume {
		return time.Duration(grace) * time.Second
	}
	return time.Duration(shape.Lasting(grace)) * time.Second
}

// generator knows what pods there would be if the node were perfect. It is only
// used to choose what makes sense.
type generator struct {
	r       *rand.Rand
	config  Config
	now     time.Duration
	slots   []*slot
	statics []*slot
	leaving []leaver
	actions []Action
}

// wait lets some time pass, between low and high.
func (g *generator) wait(low, high time.Duration) {
	g.now += low + time.Duration(g.r.Int64N(int64(high-low)))
}

func (g *generator) act(a Action) {
	a.At = g.now
	g.actions = append(g.actions, a)
}

// begin takes every slot.
func (g *generator) begin() {
	for _, s := range g.statics {
		g.write(s)
	}
	for _, s := range g.slots {
		g.wait(50*time.Millisecond, 500*time.Millisecond)
		g.create(s)
	}
}

// end hastens what would take too long to wait for.
func (g *generator) end() {
	for _, l := range g.leaving {
		if l.by > g.now+settling {
			g.act(Action{Kind: Hasten, Pod: l.name, Grace: 1 + g.r.Int64N(5)})
		}
	}
}

// step does one thing that is possible.
func (g *generator) step() {
	g.leaving = slices.DeleteFunc(g.leaving, func(l leaver) bool { return l.by <= g.now })
	free, taken := split(g.slots)
	choices := []weighted[func()]{
		{3 * len(free), func() { g.create(choose(g.r, free)) }},
		{14, g.on(taken, func(s *slot) { g.remove(s, Delete) })},
		{7, g.on(taken, g.forceDelete)},
		{8, g.on(taken, func(s *slot) { g.remove(s, Evict) })},
		{12, g.on(slices.DeleteFunc(slices.Clone(taken), func(s *slot) bool { return !s.shape.Fillable || s.filled }), g.fill)},
		{8, g.hasten},
		{4, g.forceLeaver},
	}
	if len(g.statics) > 0 {
		_, written := split(g.statics)
		choices = append(choices, []weighted[func()]{
			{8, func() { g.write(choose(g.r, g.statics)) }},
			{4, g.on(written, g.unwrite)},
			{3, g.on(written, func(s *slot) { g.act(Action{Kind: DeleteMirror, Pod: s.name}) })},
		}...)
	}
	pick(g.r, choices)()
}

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

// on does something to one of the slots, nothing if there is none.
func (g *generator) on(slots []*slot, do func(*slot)) func() {
	return func() {
		if len(slots) > 0 {
			do(choose(g.r, slots))
		}
	}
}

// create gives the slot a pod, of the name of the one before if that is free.
func (g *generator) create(s *slot) {
	if s.generation == 0 || s.freeName > g.now || oneIn(g.r, 3) {
		s.generation++
		s.freeName = 0
	}
	s.name = fmt.Sprintf("pod-%02d-%d", s.number, s.generation)
	s.taken, s.filled, s.shape, s.created = true, false, randomShape(g.r), g.now
	g.act(Action{Kind: Create, Pod: s.name, Shape: s.shape})
}

// remove deletes or evicts the pod, with its own grace period or another.
func (g *generator) remove(s *slot, kind Kind) {
	grace := OwnGrace
	if oneIn(g.r, 3) {
		grace = choose(g.r, graces[1:])
	}
	g.act(Action{Kind: kind, Pod: s.name, Grace: grace})
	if grace == OwnGrace {
		grace = s.shape.Grace
	}
	young := g.young(s)
	by := g.now + lasting(s.shape, young, grace) + 3*time.Second
	g.leaving = append(g.leaving, leaver{slot: s, name: s.name, by: by, shape: s.shape, young: young})
	// An agent that is killed meanwhile takes longer.
	s.taken, s.freeName = false, by+30*time.Second
}

// forceDelete takes the pod from the API; it may use its own grace period still.
func (g *generator) forceDelete(s *slot) {
	if !g.settles(s.shape, g.young(s)) {
		return
	}
	g.act(Action{Kind: ForceDelete, Pod: s.name})
	s.taken, s.freeName = false, 0
}

// settles says whether a pod that nobody can hasten any more would be gone in
// time.
func (g *generator) settles(shape Shape, young bool) bool {
	return g.now+lasting(shape, young, shape.Grace) <= g.config.Time+settling
}

func (g *generator) young(s *slot) bool { return g.now-s.created < adult }

func (g *generator) forceLeaver() {
	if len(g.leaving) == 0 {
		return
	}
	i := g.r.IntN(len(g.leaving))
	l := g.leaving[i]
	if !g.settles(l.shape, l.young) {
		return
	}
	g.act(Action{Kind: ForceDelete, Pod: l.name})
	g.leaving = slices.Delete(g.leaving, i, i+1)
	if l.slot.name == l.name && !l.slot.taken {
		l.slot.freeName = 0
	}
}

// hasten deletes a pod again, with a shorter grace period.
func (g *generator) hasten() {
	slow := slices.DeleteFunc(slices.Clone(g.leaving), func(l leaver) bool { return l.by < g.now+10*time.Second })
	if len(slow) == 0 {
		return
	}
	chosen := choose(g.r, slow)
	grace := 1 + g.r.Int64N(int64((chosen.by-g.now)/time.Second)-5)
	g.act(Action{Kind: Hasten, Pod: chosen.name, Grace: grace})
	for i := range g.leaving {
		if g.leaving[i].name == chosen.name {
			g.leaving[i].by = g.now + time.Duration(grace+3)*time.Second
		}
	}
}

func (g *generator) fill(s *slot) {
	g.act(Action{Kind: Fill, Pod: s.name})
	s.filled = true
}

// write starts or replaces a static pod. Sometimes the manifest that was
// removed comes back as it was.
func (g *generator) write(s *slot) {
	if s.revision == 0 || s.taken || !oneIn(g.r, 3) {
		s.revision++
		s.shape = randomStatic(g.r)
	}
	s.taken, s.name = true, fmt.Sprintf("static-%d", s.number)
	g.act(Action{Kind: WriteManifest, Pod: s.name, Shape: s.shape, Revision: s.revision})
}

func (g *generator) unwrite(s *slot) {
	g.act(Action{Kind: RemoveManifest, Pod: s.name})
	s.taken = false
}
