package collect

import (
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// scanEvery is the longest time between two searches for cgroups of pods while usage is read in quick succession. They
// are searched for at once if there are more or fewer of them, since a pod may grow from its start, and if more or
// fewer counters than before cannot be read: a pod may have been removed when another one was started. Where that
// cannot be seen, or a search failed, it is scanBlindEvery.
const (
	scanEvery      = 10 * time.Second
	scanBlindEvery = time.Second
)

// PodUsages appends the counters of all pods to a list, and returns it. A pod that cannot be read is left out. Unless
// the pods are searched for again, it allocates nothing if the list has room for all.
func (m *Memory) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	m = m.quick
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	search := m.searchDue(now)
	if search {
		m.scanAt(now)
	}
	list, unread := m.appendUsages(into)
	if unread != m.open.unread && !search {
		search = true
		m.scanAt(now)
		list, unread = m.appendUsages(into)
	}
	// A pod that was removed during the search is out of the way at the next one, and another one may have come.
	m.open.again = search && unread > m.open.unread
	m.open.unread = unread
	return list
}

func (m *Memory) searchDue(now time.Time) bool {
	l, every := &m.open, scanEvery
	if l.blind {
		every = scanBlindEvery
	}
	return l.scanned.IsZero() || now.Sub(l.scanned).Abs() >= every || l.again || m.podsChanged()
}

// appendUsages appends the counters of the pods that are known to a list. It returns how many cannot be read, too.
func (m *Memory) appendUsages(list []snapshot.PodUsage) (all []snapshot.PodUsage, unread int) {
	for i := range m.open.byPod {
		p := &m.open.byPod[i]
		if n, err := m.files.count(&p.usage); err == nil && n <= most {
			list = append(list, snapshot.PodUsage{UID: p.uid, Usage: snapshot.Bytes(n)})
		} else {
			unread++
		}
	}
	return list, unread
}

// scanAt searches for pods and QoS classes, and records when.
func (m *Memory) scanAt(now time.Time) {
	m.open.scanned = now
	m.scanPods()
}

// ReadPod reads the memory of a pod, and allocates nothing. It fails for a pod that PodUsages has not found.
func (m *Memory) ReadPod(how snapshot.Counting, uid types.UID) (snapshot.PodMemory, error) {
	m = m.quick
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.open.byPod, func(p podFiles) bool { return p.uid == uid })
	if i < 0 {
		return snapshot.PodMemory{}, fmt.Errorf("the cgroup of pod %s is unknown: %w", uid, os.ErrNotExist)
	}
	p := &m.open.byPod[i]
	pod, err := m.readMemory(p, how)
	if err == nil && pod.Resident == snapshot.Unknown {
		err = fmt.Errorf("%s: %w of active file pages", p.dir, errNoField)
	}
	return pod, err
}

// ReadPods takes a reading in which only some pods are. It fails to read those that PodUsages has not found.
func (m *Memory) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	m = m.quick
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open.scanned.IsZero() {
		m.scanAt(m.now()) // For the QoS classes: see podsObservation.
	}
	r := snapshot.MemoryReading{ByPod: make(map[types.UID]*snapshot.Memory, len(uids))}
	for i := range m.open.byPod {
		p := &m.open.byPod[i]
		if !slices.Contains(uids, p.uid) {
			continue
		}
		if pod, ok := m.readPod(p, how); ok {
			r.ByPod[p.uid] = pod
		}
	}
	how = m.inForce(how)
	r.Pods, r.PodsUsed = m.podsObservation(how)
	r.Node = m.nodeObservation(how)
	return r
}
