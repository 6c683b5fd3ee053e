package collect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/openfile"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// scanEvery is the time between two searches for cgroups of pods while usage is read in quick succession. A pod that is
// started meanwhile is not among the usages, and so not among what explains the growth of the node.
const scanEvery = time.Second

// looks are files that are read many times a second when memory is scarce. They stay open: opening a file takes longer
// than reading it.
type looks struct {
	meminfo, stalls openfile.File
	node, pods      cgroupFiles
	// byPod are the pods in the order of their paths, scanned when they were last searched for.
	byPod   []podFiles
	scanned time.Time
}

// cgroupFiles are the files of the root, which has no limit, or of the cgroup of all pods.
type cgroupFiles struct{ usage, limit, stat openfile.File }

func (m *Memory) filesOf(dir string) cgroupFiles {
	open := func(name string) openfile.File { return openfile.New(filepath.Join(dir, name)) }
	return cgroupFiles{usage: open(m.names.usage), limit: open(m.names.limit), stat: open(m.names.stat)}
}

// podFiles are the files of one pod. Those of memory.stat are opened when they are first needed, the containers' before
// the pod's: see Memory.
type podFiles struct {
	uid   types.UID
	dir   string
	usage openfile.File
	stats []openfile.File
	// found is false for a pod that the current search has not found.
	found bool
}

// PodUsages appends the counters of all pods to a list, and returns it. A pod that cannot be read is left out. Unless
// the pods are searched for again, it allocates nothing if the list has room for all.
func (m *Memory) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	m = m.quick
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.now(); m.looks.scanned.IsZero() || now.Sub(m.looks.scanned).Abs() >= scanEvery {
		m.looks.scanned = now
		m.scanPods()
	}
	for i := range m.looks.byPod {
		p := &m.looks.byPod[i]
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
	i := slices.IndexFunc(m.looks.byPod, func(p podFiles) bool { return p.uid == uid })
	if i < 0 {
		return 0, fmt.Errorf("the cgroup of pod %s is unknown: %w", uid, os.ErrNotExist)
	}
	p := &m.looks.byPod[i]
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

// statOf reads memory.stat of the containers of a pod, then that of the pod, which it returns.
func (m *Memory) statOf(p *podFiles) (stat []byte, err error) {
	if p.stats == nil {
		p.stats = m.statFiles(p.dir)
	}
	for i := range p.stats {
		if stat, err = m.files.readOpen(&p.stats[i]); err != nil && i < len(p.stats)-1 {
			p.closeStats() // A container has ended; the files are searched for again.
			return nil, err
		}
	}
	return stat, err
}

// ReadPods takes a reading in which only some pods are. It fails to read those that PodUsages has not found.
func (m *Memory) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	m = m.quick
	m.mu.Lock()
	defer m.mu.Unlock()
	r := snapshot.MemoryReading{ByPod: make(map[types.UID]*snapshot.Memory, len(uids))}
	for i := range m.looks.byPod {
		p := &m.looks.byPod[i]
		if !slices.Contains(uids, p.uid) {
			continue
		}
		if pod, ok := m.readOpenPod(p, how); ok {
			r.ByPod[p.uid] = pod
		}
	}
	how = m.inForce(how)
	r.Pods, r.Node = m.podsObservation(how), m.nodeObservation(how)
	return r
}

// readOpenPod is readPod with files that stay open.
func (m *Memory) readOpenPod(p *podFiles, how snapshot.Counting) (*snapshot.Memory, bool) {
	usage, err := m.files.countOpen(&p.usage)
	if err != nil {
		return nil, false
	}
	stat, err := m.statOf(p)
	if err != nil {
		return m.readPod(p.dir, how)
	}
	return m.podMemory(p.dir, usage, stat, how)
}

// statFiles returns the files memory.stat of a pod, its own as the last one.
func (m *Memory) statFiles(dir string) (list []openfile.File) {
	if entries, err := os.ReadDir(dir); err == nil {
		for _, e := range entries {
			if e.IsDir() {
				list = append(list, openfile.New(filepath.Join(dir, e.Name(), m.names.stat)))
			}
		}
	}
	return append(list, openfile.New(filepath.Join(dir, m.names.stat)))
}

func (p *podFiles) closeStats() {
	for i := range p.stats {
		p.stats[i].Close()
	}
	p.stats = nil
}

// scanPods searches for the cgroups of pods. Those that are known keep their files of usage open; containers may have
// been started or ended, so that the others are opened again when they are needed.
func (m *Memory) scanPods() {
	l := &m.looks
	for i := range l.byPod {
		l.byPod[i].found = false
		l.byPod[i].closeStats()
	}
	m.scanBelow(m.pods)
	l.byPod = slices.DeleteFunc(l.byPod, func(p podFiles) bool {
		if !p.found {
			p.usage.Close()
		}
		return !p.found
	})
}

func (m *Memory) scanBelow(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	l := &m.looks
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		uid, isPod := m.cgroups.podUID(e.Name())
		if !isPod {
			if m.cgroups.isQOSClass(e.Name()) {
				m.scanBelow(path)
			}
			continue
		}
		i, known := slices.BinarySearchFunc(l.byPod, path, func(p podFiles, path string) int {
			return strings.Compare(p.dir, path)
		})
		if !known {
			l.byPod = slices.Insert(l.byPod, i, podFiles{
				uid: types.UID(uid), dir: path, usage: openfile.New(filepath.Join(path, m.names.usage)),
			})
		}
		l.byPod[i].found = true
	}
}
