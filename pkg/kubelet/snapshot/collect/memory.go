package collect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Options says where to read. The zero value of a path is its usual place.
type Options struct {
	// CgroupRoot is where cgroup file systems are mounted, usually /sys/fs/cgroup.
	CgroupRoot string
	// Meminfo is usually /proc/meminfo.
	Meminfo string
	// PodsCgroup is the cgroup of all pods below the root, for example "/kubepods" or "/kubepods.slice".
	PodsCgroup string
	// Now is the clock that readings are stamped with.
	Now func() time.Time
}

// Memory reads memory. It may be used from several goroutines; readings are taken one at a time.
type Memory struct {
	mu       sync.Mutex
	files    files
	names    names
	root     string
	pods     string
	meminfo  string
	capacity int64
	now      func() time.Time
}

// errUnlimited: a cgroup without a limit has no amount that is available in it.
var errUnlimited = errors.New("the cgroup of all pods has no memory limit")

// NewMemory finds out which cgroup version there is. It fails when memory cannot be read here at all.
func NewMemory(o Options) (*Memory, error) {
	if o.CgroupRoot == "" {
		o.CgroupRoot = "/sys/fs/cgroup"
	}
	if o.Meminfo == "" {
		o.Meminfo = "/proc/meminfo"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Memory{names: v2Names, root: o.CgroupRoot, meminfo: o.Meminfo, now: o.Now}
	if _, err := os.Stat(filepath.Join(o.CgroupRoot, "cgroup.controllers")); err != nil {
		m.names, m.root = v1Names, filepath.Join(o.CgroupRoot, "memory")
	}
	m.pods = filepath.Join(m.root, o.PodsCgroup)
	info, err := m.meminfoOf()
	if err != nil {
		return nil, err
	}
	m.capacity = info.total
	if _, err := m.nodeUsage(); err != nil {
		return nil, fmt.Errorf("memory of the node cannot be read from cgroup files: %w", err)
	}
	return m, nil
}

// Counters reads the exact counters: three small files. A cgroup of all pods that is not there (yet) counts as empty.
func (m *Memory) Counters() (snapshot.MemoryCounters, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	info, err := m.meminfoOf()
	if err != nil {
		return snapshot.MemoryCounters{}, err
	}
	node, err := m.nodeUsage()
	if err != nil {
		return snapshot.MemoryCounters{}, err
	}
	pods, err := m.files.count(filepath.Join(m.pods, m.names.usage))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return snapshot.MemoryCounters{}, err
	}
	return snapshot.MemoryCounters{
		Node: snapshot.Bytes(node), Pods: snapshot.Bytes(pods), NodeInactive: snapshot.Bytes(info.inactiveFile),
	}, nil
}

// ReadMemory takes a reading. Leaves are read first.
func (m *Memory) ReadMemory() snapshot.MemoryReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := snapshot.MemoryReading{ByPod: map[types.UID]*snapshot.Memory{}}
	m.readPods(m.pods, r.ByPod)
	r.Pods = m.podsObservation()
	r.Node = m.nodeObservation()
	return r
}

func (m *Memory) readPods(dir string, byPod map[types.UID]*snapshot.Memory) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if uid, ok := podUID(e.Name()); ok {
			if p, ok := m.readPod(path); ok {
				byPod[types.UID(uid)] = p
			}
		} else if isQOSClass(e.Name()) {
			m.readPods(path, byPod)
		}
	}
}

// readPod reads a pod, its containers first.
func (m *Memory) readPod(dir string) (*snapshot.Memory, bool) {
	if entries, err := os.ReadDir(dir); err == nil {
		for _, e := range entries {
			if e.IsDir() {
				_, _ = m.files.read(filepath.Join(dir, e.Name(), m.names.stat))
			}
		}
	}
	usage, err := m.files.count(filepath.Join(dir, m.names.usage))
	if err != nil {
		return nil, false
	}
	stat, err := m.files.read(filepath.Join(dir, m.names.stat))
	if err != nil {
		return nil, false
	}
	at := m.now()
	inactive, ok := field(stat, m.names.inactiveFile)
	if !ok {
		return nil, false
	}
	p := &snapshot.Memory{WorkingSet: snapshot.Known(snapshot.Bytes(max(0, usage-inactive)), at)}
	if anonymous, ok := field(stat, m.names.anonymous); ok {
		p.Anonymous = snapshot.Known(snapshot.Bytes(anonymous), at)
	}
	return p, true
}

func (m *Memory) podsObservation() snapshot.Observation {
	limit, err := m.files.count(filepath.Join(m.pods, m.names.limit))
	if err != nil {
		return snapshot.Observation{Err: err}
	}
	if limit >= unlimited {
		return snapshot.Observation{Err: errUnlimited}
	}
	usage, err := m.files.count(filepath.Join(m.pods, m.names.usage))
	if err != nil {
		return snapshot.Observation{Err: err}
	}
	return m.observation(m.pods, limit, usage)
}

func (m *Memory) nodeObservation() snapshot.Observation {
	usage, err := m.nodeUsage()
	if err != nil {
		return snapshot.Observation{Err: err}
	}
	return m.observation(m.root, m.capacity, usage)
}

// observation is what is left of a limit. A working set above the limit leaves a negative amount.
func (m *Memory) observation(dir string, limit, usage int64) snapshot.Observation {
	stat, err := m.files.read(filepath.Join(dir, m.names.stat))
	if err != nil {
		return snapshot.Observation{Err: err}
	}
	inactive, ok := field(stat, m.names.inactiveFile)
	if !ok {
		return snapshot.Observation{Err: fmt.Errorf("%s/%s has no %s", dir, m.names.stat, m.names.inactiveFile)}
	}
	return snapshot.Observation{Available: limit - max(0, usage-inactive), Capacity: limit, At: m.now()}
}

// nodeUsage is the counter of the root cgroup; on cgroup v2, where it has none, total memory less free memory.
func (m *Memory) nodeUsage() (int64, error) {
	if !m.names.rootUsageFromMeminfo {
		return m.files.count(filepath.Join(m.root, m.names.usage))
	}
	info, err := m.meminfoOf()
	return info.total - info.free, err
}

type meminfo struct{ total, free, inactiveFile int64 }

func (m *Memory) meminfoOf() (info meminfo, err error) {
	data, err := m.files.read(m.meminfo)
	if err != nil {
		return info, err
	}
	for key, value := range map[string]*int64{"MemTotal:": &info.total, "MemFree:": &info.free, "Inactive(file):": &info.inactiveFile} {
		n, ok := field(data, key)
		if !ok {
			return info, fmt.Errorf("%s has no %s", m.meminfo, key)
		}
		*value = n
	}
	return info, nil
}
