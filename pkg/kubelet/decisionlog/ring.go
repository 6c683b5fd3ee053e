package decisionlog

import (
	"bytes"
	"compress/flate"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Bounds of what a record has beside what is compressed, in bytes: an upper estimate of its structures.
const (
	recordBytes   = 400
	outcomeBytes  = 400
	namedPodBytes = 48
	// maxOutcomes bounds the outcomes of one decision. It has at most one victim per pod and a few results of each.
	maxOutcomes = 1 << 12
)

// record is an entry of the ring. Exactly one of decision, admission and preemption is set.
type record struct {
	time   time.Time
	number uint64
	// decision and replay are compressed JSON of a PressureDecision and its PressureReplay.
	decision, replay []byte
	rules            string
	// withState: replay has the state before the decision. acts: the decision begins something, or ends it.
	withState, acts bool
	// pods are those of the snapshot, involved those that the decision is about.
	pods, involved []*snapshot.Facts
	outcomes       []debugv1alpha1.PressureOutcome
	admission      *debugv1alpha1.PressureAdmission
	preemption     *debugv1alpha1.PressurePreemption
}

func (r *record) bytes() int64 {
	n := recordBytes + len(r.decision) + len(r.replay) + 8*(cap(r.pods)+cap(r.involved))
	for i := range r.outcomes {
		n += outcomeSize(&r.outcomes[i])
	}
	if a := r.admission; a != nil {
		n += recordBytes + len(a.Message) + len(a.Reason)
	}
	if p := r.preemption; p != nil {
		n += recordBytes + len(p.Error)
		for _, list := range [][]debugv1alpha1.PressurePod{p.Stop, p.Await} {
			for i := range list {
				n += namedPodBytes + len(list[i].Namespace) + len(list[i].Name) + len(list[i].UID)
			}
		}
	}
	return int64(n)
}

func outcomeSize(o *debugv1alpha1.PressureOutcome) int {
	return outcomeBytes + len(o.Detail) + len(o.Error)
}

// ring has the newest records that fit into a number of bytes, the oldest first. Decisions that act are kept for longer
// than others, as long as they occupy at most half of that: otherwise a pod whose usage goes up and down would displace
// what people ask for. Its caller serializes all calls.
type ring struct {
	// size is what all records occupy, acting the part of decisions that act without their pods, both in bytes.
	limit, size, acting int64
	records             []*record
	// pods counts the records that refer to a pod; podBytes is what one pod counts.
	pods map[*snapshot.Facts]int
	// rules are those that records refer to.
	rules map[string]*usedRules
}

type usedRules struct {
	debugv1alpha1.PressureTraceRules
	records int
}

func newRing(limit int64) *ring {
	return &ring{limit: limit, pods: map[*snapshot.Facts]int{}, rules: map[string]*usedRules{}}
}

// podSize is how much a pod counts: an estimate that grows with what it has lists of, and with its texts.
func podSize(f *snapshot.Facts) int64 {
	n := 500 + len(f.Namespace) + len(f.Name)
	for i := range f.Containers {
		n += 150 + len(f.Containers[i].Name)
	}
	for _, names := range [][]string{f.Volumes, f.MemoryVolumes} {
		for _, name := range names {
			n += 16 + len(name)
		}
	}
	for key, text := range f.Annotations {
		n += 100 + len(key) + len(text)
	}
	return int64(n)
}

// add appends a record; rules are those of a decision, with the same ID. Records are dropped until the rest fits; the
// new one stays.
func (g *ring) add(r *record, rules *debugv1alpha1.PressureTraceRules) {
	g.size += r.bytes()
	for _, f := range r.pods {
		if g.pods[f]++; g.pods[f] == 1 {
			g.size += podSize(f)
		}
	}
	if rules != nil {
		used := g.rules[rules.ID]
		if used == nil {
			used = &usedRules{PressureTraceRules: *rules}
			g.rules[rules.ID] = used
			g.size += int64(len(rules.Rules))
		}
		used.records++
	}
	g.records = append(g.records, r)
	if r.acts {
		g.acting += r.bytes()
	}
	g.shrink(r)
}

// shrink drops records until the rest fits. keep stays.
func (g *ring) shrink(keep *record) {
	for g.size > g.limit && len(g.records) > 1 {
		g.drop(g.next(keep))
	}
}

// next returns the index of the record to drop, of at least two.
func (g *ring) next(keep *record) int {
	if g.acting <= g.limit/2 {
		for i, r := range g.records {
			if !r.acts && r != keep {
				return i
			}
		}
	}
	if g.records[0] == keep {
		return 1
	}
	return 0
}

// drop drops a record, which is one of the oldest.
func (g *ring) drop(i int) {
	r := g.records[i]
	copy(g.records[1:i+1], g.records[:i])
	g.records[0] = nil
	g.records = g.records[1:]
	g.size -= r.bytes()
	if r.acts {
		g.acting -= r.bytes()
	}
	for _, f := range r.pods {
		if g.pods[f]--; g.pods[f] == 0 {
			delete(g.pods, f)
			g.size -= podSize(f)
		}
	}
	if used := g.rules[r.rules]; used != nil {
		if used.records--; used.records == 0 {
			delete(g.rules, r.rules)
			g.size -= int64(len(used.Rules))
		}
	}
}

// find returns the record of a decision, nil if there is none. Numbers of decisions grow, so that the search begins
// with the newest.
func (g *ring) find(number uint64) *record {
	for i := len(g.records) - 1; i >= 0; i-- {
		if r := g.records[i]; r.number == number && r.decision != nil {
			return r
		}
	}
	return nil
}

// addOutcome adds what became of a decision. It returns false if the decision has no record.
func (g *ring) addOutcome(o *debugv1alpha1.PressureOutcome) bool {
	r := g.find(o.Decision)
	if r == nil || len(r.outcomes) >= maxOutcomes {
		return false
	}
	// Readers have copies of the header of the list: it is never changed in place.
	r.outcomes = append(r.outcomes[:len(r.outcomes):len(r.outcomes)], *o)
	g.size += int64(outcomeSize(o))
	if r.acts {
		g.acting += int64(outcomeSize(o))
	}
	g.shrink(r)
	return true
}

// PodQuery selects a pod: by its UID, or by its name and, unless that is empty, its namespace. Either suffices.
type PodQuery struct {
	UID             types.UID
	Namespace, Name string
}

func (q *PodQuery) matches(namespace, name string, uid types.UID) bool {
	named := q.Name != "" && name == q.Name && (q.Namespace == "" || namespace == q.Namespace)
	return named || (q.UID != "" && uid == q.UID)
}

// isAbout reports whether the record is about the pod.
func (r *record) isAbout(q *PodQuery) bool {
	switch {
	case r.admission != nil:
		return q.matches(r.admission.Namespace, r.admission.Name, r.admission.UID)
	case r.preemption != nil:
		p, is := r.preemption, func(p debugv1alpha1.PressurePod) bool { return q.matches(p.Namespace, p.Name, p.UID) }
		return is(p.PressurePod) || slices.ContainsFunc(p.Stop, is) || slices.ContainsFunc(p.Await, is)
	}
	return slices.ContainsFunc(r.involved, func(f *snapshot.Facts) bool { return q.matches(f.Namespace, f.Name, f.UID) })
}

// compressor compresses texts one after the other. Its state is kept, since that is large.
type compressor struct {
	buffer bytes.Buffer
	writer *flate.Writer
}

func (c *compressor) compress(text []byte) []byte {
	c.buffer.Reset()
	if c.writer == nil {
		// An error is possible for invalid levels only, and a buffer does not fail.
		c.writer, _ = flate.NewWriter(&c.buffer, flate.BestSpeed)
	} else {
		c.writer.Reset(&c.buffer)
	}
	_, _ = c.writer.Write(text)
	_ = c.writer.Close()
	return bytes.Clone(c.buffer.Bytes())
}

// decompress returns the text of something that compress has made.
func decompress(data []byte) ([]byte, error) {
	return io.ReadAll(flate.NewReader(bytes.NewReader(data)))
}
