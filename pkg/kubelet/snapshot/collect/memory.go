package collect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/openfile"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/shortcall"
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
	// CPUs is how many CPUs the node has, at least one; zero stands for those that this process may use.
	CPUs int
	// Now returns the time of a reading by the wall clock; time.Now when nil.
	Now func() time.Time
	// Logger logs when cgroups of pods are not recognized; the zero value discards that.
	Logger klog.Logger
}

// Memory reads memory from cgroup files. It is safe for concurrent use; readings of all pods are taken one at a time,
// and so are those of counters and of single pods, which do not wait for the former.
type Memory struct {
	// quick reads the same files for Counters, PodUsages, ReadPod and ReadPods.
	quick *Memory
	mu    sync.Mutex
	files files
	names names
	// open are the files, of which reading allocates nothing.
	open openFiles
	root string
	// pods is the cgroup of all pods, cgroups the names of those below it.
	pods    string
	cgroups cgroupNames
	// processes is the root of the cgroup tree that counts processes.
	processes string
	meminfo   string
	// inContainer is true on cgroup v2 if the root has a counter.
	inContainer bool
	// info is what was last read of it; it is here so that reading it allocates nothing.
	info meminfo
	// folder is what was last read of a directory, for the same reason.
	folder unix.Statx_t
	cpus   int
	now    func() time.Time
	logger klog.Logger
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
	if o.CPUs == 0 {
		o.CPUs = runtime.NumCPU()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	registerMetrics()
	m := newMemory(o)
	if _, _, err := m.readNode(snapshot.Counting{}); err != nil {
		return nil, fmt.Errorf("memory of the node cannot be read: %w", err)
	}
	m.quick = newMemory(o)
	return m, nil
}

func newMemory(o Options) *Memory {
	root := filepath.Clean(o.CgroupRoot)
	m := &Memory{
		names: v2Names, root: root, processes: root, meminfo: o.Meminfo, now: o.Now, cpus: o.CPUs,
		cgroups: namesBelow(o.PodsCgroup), logger: o.Logger,
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		m.names, m.root, m.processes = v1Names, filepath.Join(root, "memory"), filepath.Join(root, "pids")
	}
	m.inContainer = m.names.unified && unix.Access(filepath.Join(root, m.names.usage), unix.R_OK) == nil
	m.pods = filepath.Join(m.root, o.PodsCgroup)
	m.open = openFiles{
		meminfo: openfile.New(m.meminfo), stalls: openfile.New(o.Stalls),
		node: m.filesOf(m.root), pods: m.filesOf(m.pods),
	}
	return m
}

// Counters reads the exact counters: a few small files, which stay open. It allocates nothing. A cgroup of all pods
// that does not exist (yet) counts as empty.
func (m *Memory) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	m = m.quick
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.now()
	info, node, err := m.readNode(how)
	if err != nil {
		return snapshot.MemoryCounters{}, err
	}
	pods, err := m.files.count(&m.open.pods.usage)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return snapshot.MemoryCounters{}, err
	}
	how = m.inForce(how)
	spare := info.page.spare(how) + info.beyond(how)
	return snapshot.MemoryCounters{Node: snapshot.Bytes(node), Pods: snapshot.Bytes(pods),
		NodeSpare: snapshot.Bytes(spare), NodeCapacity: snapshot.Bytes(info.total), At: snapshot.WallTime(at)}, nil
}

// CPUs returns how many CPUs the node has.
func (m *Memory) CPUs() int { return m.cpus }

// LockThread keeps the calling goroutine on its thread until UnlockThread is called.
func (*Memory) LockThread() { runtime.LockOSThread() }

// UnlockThread ends what LockThread began.
func (*Memory) UnlockThread() { runtime.UnlockOSThread() }

// ThreadTime returns the CPU time that the calling thread has used, zero if the kernel does not say so.
func (m *Memory) ThreadTime() time.Duration {
	t, err := shortcall.Clock(unix.CLOCK_THREAD_CPUTIME_ID)
	if err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// ReadMemory takes a reading. Leaves are read first.
func (m *Memory) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scanPods()
	m.reportUnrecognized()
	r := snapshot.MemoryReading{ByPod: make(map[types.UID]*snapshot.Memory, len(m.open.byPod))}
	for i := range m.open.byPod {
		p := &m.open.byPod[i]
		if pod, ok := m.readPod(p, how); ok {
			r.ByPod[p.uid] = pod
		}
	}
	how = m.inForce(how)
	r.Pods, r.PodsUsed = m.podsObservation(how)
	r.Node = m.nodeObservation(how)
	return r
}

// podsObservation returns what the cgroup of all pods has available, and what it uses. The date is from before the
// usage was read: what is released later may still be part of the usage.
func (m *Memory) podsObservation(how snapshot.Counting) (o snapshot.Observation, used snapshot.Bytes) {
	at, f := m.now(), &m.open.pods
	limit, err := m.files.count(&f.limit)
	if err != nil {
		return snapshot.Observation{Err: err}, 0
	}
	if limit >= unlimited {
		return snapshot.Observation{Err: errUnlimited}, 0
	}
	for i := range m.open.classes {
		_, _ = m.files.read(&m.open.classes[i]) // Its statistics are summed up.
	}
	usage, err := m.files.count(&f.usage)
	if err != nil {
		return snapshot.Observation{Err: err}, 0
	}
	stat, err := m.files.read(&f.stat)
	if err != nil {
		return snapshot.Observation{Err: err}, 0
	}
	c, err := cacheOf(stat, m.names.cache, how)
	if err != nil {
		return snapshot.Observation{Err: fmt.Errorf("%s: %w", f.stat.Path(), err)}, 0
	}
	return observationOf(at, limit, usage, c.spare(how)), snapshot.Bytes(usage)
}

// nodeObservation returns what the node has available, dated as that of all pods. Its page cache is that of
// /proc/meminfo, as in Counters: memory.stat of the root may lag by two seconds.
func (m *Memory) nodeObservation(how snapshot.Counting) snapshot.Observation {
	at := m.now()
	info, usage, err := m.readNode(how)
	if err != nil {
		return snapshot.Observation{Err: err}
	}
	o := observationOf(at, info.total, usage, info.page.spare(how))
	o.Available += info.beyond(how)
	return o
}

// observationOf returns the limit less the working set. It is negative when the working set is above the limit.
func observationOf(at time.Time, limit, usage, spare int64) snapshot.Observation {
	return snapshot.Observation{Available: limit - max(0, usage-spare), Capacity: limit, At: snapshot.WallTime(at)}
}

// readNode returns the counter of the root cgroup; on cgroup v2, where it has none, the same sum from /proc/meminfo. A
// node in a container, as one of kind, has a root of its own, which counts its memory: then page cache and anonymous
// memory are those of the root as well, as with stock.
func (m *Memory) readNode(how snapshot.Counting) (info meminfo, usage int64, err error) {
	if info, err = m.meminfoOf(); err != nil || (m.names.unified && !m.inContainer) {
		return info, info.used(), err
	}
	if usage, err = m.files.count(&m.open.node.usage); err != nil || !m.inContainer {
		return info, usage, err
	}
	stat, err := m.files.read(&m.open.node.stat)
	if err != nil {
		return info, 0, err
	}
	info.inactiveAnon = 0
	info.activeAnon, _ = field(stat, m.names.anonymous)
	info.page, err = cacheOf(stat, m.names.cache, how)
	return info, usage, err
}

func (m *Memory) meminfoOf() (info meminfo, err error) {
	data, err := m.files.read(&m.open.meminfo)
	if err != nil {
		return info, err
	}
	if err := m.info.parse(data); err != nil {
		return info, fmt.Errorf("%s: %w", m.meminfo, err)
	}
	return m.info, nil
}
