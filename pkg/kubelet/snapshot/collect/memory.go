package collect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/openfile"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Options are the paths that a Memory reads. An empty path stands for the usual one.
type Options struct {
	// CgroupRoot is where cgroup file systems are mounted, usually /sys/fs/cgroup.
	CgroupRoot string
	// Meminfo is usually /proc/meminfo, Stalls /proc/pressure/memory.
	Meminfo, Stalls string
	// PodsCgroup is the cgroup of all pods below the root, for example "/kubepods" or "/kubepods.slice".
	PodsCgroup string
	// Now returns the time of a reading by the wall clock; time.Now when nil.
	Now func() time.Time
	// Logger logs when cgroups of pods are not recognized; the zero value discards that.
	Logger klog.Logger
}

// Memory reads memory from cgroup files. It is safe for concurrent use; readings of all pods are taken one at a time,
// and so are those of counters and of single pods, which do not wait for the former.
type Memory struct {
	// quick reads the same files for Counters, PodUsages, Resident and ReadPods.
	quick *Memory
	mu    sync.Mutex
	files files
	names names
	// looks are the files of which reading allocates nothing.
	looks looks
	root  string
	// pods is the cgroup of all pods, cgroups the names of those below it.
	pods    string
	cgroups cgroupNames
	// processes is the root of the cgroup tree that counts processes.
	processes string
	meminfo   string
	// info is what was last read of it; it is here so that reading it allocates nothing.
	info     meminfo
	capacity int64
	now      func() time.Time
	logger   klog.Logger
	// recognized is the number of cgroups of pods in this reading. unrecognized are the other cgroups beside them, whose
	// names are not those of pods; reported are those that were last logged.
	recognized             int
	unrecognized, reported []string
}

// errUnlimited: a cgroup without a limit has no available amount.
var errUnlimited = errors.New("the cgroup of all pods has no memory limit")

// NewMemory detects the cgroup version. It fails when memory of the node cannot be read.
func NewMemory(o Options) (*Memory, error) {
	if o.CgroupRoot == "" {
		o.CgroupRoot = "/sys/fs/cgroup"
	}
	if o.Meminfo == "" {
		o.Meminfo = "/proc/meminfo"
	}
	if o.Stalls == "" {
		o.Stalls = "/proc/pressure/memory"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	registerMetrics()
	m := newMemory(o)
	info, err := m.meminfoOf()
	if err != nil {
		return nil, err
	}
	m.capacity = info.total
	if _, err := m.nodeUsage(&info); err != nil {
		return nil, fmt.Errorf("memory of the node cannot be read from cgroup files: %w", err)
	}
	m.quick = newMemory(o)
	m.quick.capacity = m.capacity
	return m, nil
}

func newMemory(o Options) *Memory {
	m := &Memory{
		names: v2Names, root: o.CgroupRoot, processes: o.CgroupRoot, meminfo: o.Meminfo, now: o.Now,
		cgroups: namesBelow(o.PodsCgroup), logger: o.Logger,
	}
	if _, err := os.Stat(filepath.Join(o.CgroupRoot, "cgroup.controllers")); err != nil {
		m.names, m.root, m.processes = v1Names, filepath.Join(o.CgroupRoot, "memory"), filepath.Join(o.CgroupRoot, "pids")
	}
	m.pods = filepath.Join(m.root, o.PodsCgroup)
	m.looks = looks{
		meminfo: openfile.New(m.meminfo), stalls: openfile.New(o.Stalls), node: m.filesOf(m.root), pods: m.filesOf(m.pods),
	}
	return m
}

// Counters reads the exact counters: a few small files, which stay open. It allocates nothing. A cgroup of all pods
// that does not exist (yet) counts as empty.
func (m *Memory) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	m = m.quick
	m.mu.Lock()
	defer m.mu.Unlock()
	info, err := m.meminfoOf()
	if err != nil {
		return snapshot.MemoryCounters{}, err
	}
	node, err := m.nodeUsage(&info)
	if err != nil {
		return snapshot.MemoryCounters{}, err
	}
	pods, err := m.files.countOpen(&m.looks.pods.usage)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return snapshot.MemoryCounters{}, err
	}
	how = m.inForce(how)
	spare := info.page.spare(how) + info.beyond(how)
	return snapshot.MemoryCounters{Node: snapshot.Bytes(node), Pods: snapshot.Bytes(pods),
		NodeSpare: snapshot.Bytes(spare)}, nil
}

// ThreadTime returns the CPU time that the calling thread has used, zero if the kernel does not say so.
func (m *Memory) ThreadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// ReadMemory takes a reading. Leaves are read first.
func (m *Memory) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := snapshot.MemoryReading{ByPod: map[types.UID]*snapshot.Memory{}}
	m.recognized, m.unrecognized = 0, m.unrecognized[:0]
	m.readPods(m.pods, r.ByPod, how)
	m.reportUnrecognized()
	how = m.inForce(how)
	r.Pods = m.podsObservation(how)
	r.Node = m.nodeObservation(how)
	return r
}

// readPods reads the pods in a cgroup. It ignores other cgroups beside them.
func (m *Memory) readPods(dir string, byPod map[types.UID]*snapshot.Memory, how snapshot.Counting) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	var others []string
	recognized := false
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		uid, isPod := m.cgroups.podUID(e.Name())
		isClass := !isPod && m.cgroups.isQOSClass(e.Name())
		recognized = recognized || isPod || isClass
		switch {
		case isPod:
			m.recognized++
			if p, ok := m.readPod(path, how); ok {
				byPod[types.UID(uid)] = p
			}
		case isClass:
			m.readPods(path, byPod, how)
		default:
			others = append(others, path)
		}
	}
	if !recognized {
		m.unrecognized = append(m.unrecognized, others...)
	}
}

// readPod reads a pod, its containers first. Its swap counts as used when free swap counts as available.
func (m *Memory) readPod(dir string, how snapshot.Counting) (*snapshot.Memory, bool) {
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
	return m.podMemory(dir, usage, stat, how)
}

// podMemory returns the memory of the pod in dir by its counter and its memory.stat, which it invalidates.
func (m *Memory) podMemory(dir string, usage int64, stat []byte, how snapshot.Counting) (*snapshot.Memory, bool) {
	at := m.now()
	inactive, ok := field(stat, m.names.cache.inactive)
	if !ok {
		return nil, false
	}
	anonymous, known := field(stat, m.names.anonymous)
	swapped := int64(0)
	if how.Swap {
		swapped = m.swapOf(dir, stat)
	}
	p := &snapshot.Memory{WorkingSet: snapshot.Known(snapshot.Bytes(max(0, usage-inactive)+swapped), at),
		Processes: m.processesOf(dir)}
	if known {
		p.Anonymous = snapshot.Known(snapshot.Bytes(anonymous+swapped), at)
	}
	return p, true
}

// processesFile counts the tasks of a cgroup and of those below it, on both versions (kernel, cgroup-v1/pids and
// cgroup-v2, "PID").
const processesFile = "pids.current"

// processesOf returns the number of processes of the pod whose memory is counted in dir.
func (m *Memory) processesOf(dir string) snapshot.Value[snapshot.PIDs] {
	below, err := filepath.Rel(m.root, dir)
	if err != nil {
		return snapshot.Value[snapshot.PIDs]{}
	}
	n, err := m.files.count(filepath.Join(m.processes, below, processesFile))
	if err != nil || n > most {
		return snapshot.Value[snapshot.PIDs]{}
	}
	return snapshot.Known(snapshot.PIDs(n), m.now())
}

// swapOf returns how much of a cgroup is in swap; zero where swap is not accounted. It invalidates stat.
func (m *Memory) swapOf(dir string, stat []byte) int64 {
	if m.names.swap != "" {
		n, _ := field(stat, m.names.swap)
		return n
	}
	n, err := m.files.count(filepath.Join(dir, m.names.swapFile))
	if err != nil || n > most {
		return 0
	}
	return n
}

func (m *Memory) podsObservation(how snapshot.Counting) snapshot.Observation {
	at := m.now()
	limit, err := m.files.countOpen(&m.looks.pods.limit)
	if err != nil {
		return snapshot.Observation{Err: err}
	}
	if limit >= unlimited {
		return snapshot.Observation{Err: errUnlimited}
	}
	usage, err := m.files.countOpen(&m.looks.pods.usage)
	if err != nil {
		return snapshot.Observation{Err: err}
	}
	return m.observation(&m.looks.pods, at, limit, usage, how)
}

func (m *Memory) nodeObservation(how snapshot.Counting) snapshot.Observation {
	at := m.now()
	info, err := m.meminfoOf()
	if err != nil {
		return snapshot.Observation{Err: err}
	}
	usage, err := m.nodeUsage(&info)
	if err != nil {
		return snapshot.Observation{Err: err}
	}
	o := m.observation(&m.looks.node, at, m.capacity, usage, how)
	o.Available += info.beyond(how)
	return o
}

// observation returns the limit less the working set. It is negative when the working set is above the limit. Its date
// at is from before the usage was read: what is released later may still be part of the usage.
func (m *Memory) observation(f *cgroupFiles, at time.Time, limit, usage int64, how snapshot.Counting) snapshot.Observation {
	stat, err := m.files.readOpen(&f.stat)
	if err != nil {
		return snapshot.Observation{Err: err}
	}
	c, err := cacheOf(stat, m.names.cache, how)
	if err != nil {
		return snapshot.Observation{Err: fmt.Errorf("%s: %w", f.stat.Path(), err)}
	}
	available := limit - max(0, usage-c.spare(how))
	return snapshot.Observation{Available: available, Capacity: limit, At: snapshot.WallTime(at)}
}

// nodeUsage returns the counter of the root cgroup; on cgroup v2, where it has none, the same sum from /proc/meminfo.
func (m *Memory) nodeUsage(info *meminfo) (int64, error) {
	if !m.names.rootUsageFromMeminfo {
		return m.files.countOpen(&m.looks.node.usage)
	}
	return info.used(), nil
}

func (m *Memory) meminfoOf() (info meminfo, err error) {
	data, err := m.files.readOpen(&m.looks.meminfo)
	if err != nil {
		return info, err
	}
	if err := m.info.parse(data); err != nil {
		return info, fmt.Errorf("%s: %w", m.meminfo, err)
	}
	return m.info, nil
}
