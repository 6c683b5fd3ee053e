package collect

import (
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// scanEvery is the time between two searches for cgroups of pods while usage is read in quick succession. A pod that is
// started meanwhile is not among the usages, and so not among what explains the growth of the node.
const scanEvery = time.Second

// PodUsages appends the counters of all pods to a list, and returns it. A pod that cannot be read is left out. Unless
// the pods are searched for again, it allocates nothing if the list has room for all.
func (m *Memory) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	m = m.quick
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.now(); m.open.scanned.IsZero() || now.Sub(m.open.scanned).Abs() >= scanEvery {
		m.open.scanned = now
		m.scanPods()
	}
	for i := range m.open.byPod {
		p := &m.open.byPod[i]
		if n, err := m.files.countOpen(&p.usage); err == nil && n <= most {
			into = append(into, snapshot.PodUsage{UID: p.uid, Usage: snapshot.Bytes(n)})
		}
	}
	return into
}

// Resident returns the memory of a pod without page cache: anonymous memory, files in memory, and memory of the kernel.
// It fails for a pod that PodUsages has not found.
func (m *Memory) Resident(uid types.UID) (snapshot.Bytes, error) {
	m = m.quick
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.open.byPod, func(p podFiles) bool { return p.uid == uid })
	if i < 0 {
		return 0, fmt.Errorf("the cgroup of pod %s is unknown: %w", uid, os.ErrNotExist)
	}
	p := &m.open.byPod[i]
	m.readContainers(p)
	stat, err := m.statOf(p)
	if err != nil {
		return 0, err
	}
	inactive, ok := field(stat, m.names.cache.inactive)
	active, alsoOK := field(stat, m.names.cache.active)
	if !ok || !alsoOK {
		return 0, fmt.Errorf("%s: %w of file pages", p.dir, errNoField)
	}
	usage, err := m.files.countOpen(&p.usage)
	if err != nil {
		return 0, err
	}
	return snapshot.Bytes(max(0, usage-inactive-active)), nil
}

// ReadPods takes a reading in which only some pods are. It fails to read those that PodUsages has not found.
func (m *Memory) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	m = m.quick
	m.mu.Lock()
	defer m.mu.Unlock()
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
	r.Pods, r.Node = m.podsObservation(how), m.nodeObservation(how)
	return r
}
