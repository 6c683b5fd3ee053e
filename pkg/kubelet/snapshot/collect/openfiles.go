package collect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/openfile"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// openFiles are the files of memory. They stay open: opening a file takes longer than reading it.
type openFiles struct {
	meminfo, stalls openfile.File
	// node are the files of the root, of which cgroup v2 has some in a container only.
	node, pods cgroupFiles
	// byPod are the pods in the order of their paths, scanned when PodUsages last searched for them, unread the number of
	// those of which it last could not read the counter. searched are the cgroups in which they were found.
	byPod    []podFiles
	scanned  time.Time
	unread   int
	searched []folder
	// again is true if the next look has to search again, blind if the state of what was searched does not say whether
	// there are more or fewer pods, failed if the last search may have missed some.
	again, blind, failed bool
	// classes are memory.stat of the cgroups of QoS classes, found with the pods.
	classes []openfile.File
}

// cgroupFiles are the files of the cgroup of all pods.
type cgroupFiles struct{ usage, limit, stat openfile.File }

func (m *Memory) filesOf(dir string) cgroupFiles {
	open := func(name string) openfile.File { return openfile.New(filepath.Join(dir, name)) }
	return cgroupFiles{usage: open(m.names.usage), limit: open(m.names.limit), stat: open(m.names.stat)}
}

// folderState is the inode of a directory, another one after it was removed and created again, and its number of
// links, which counts the directories in it.
type folderState struct{ inode, links uint64 }

// folder is a cgroup, and its state when it was last read. Its path ends with a zero byte.
type folder struct {
	path  []byte
	state folderState
}

func (m *Memory) folderAt(dir string) folder {
	f := folder{path: append([]byte(dir), 0)}
	f.state = m.stateOf(f)
	return f
}

// changed reports whether one of them was removed or replaced since, or has more or fewer cgroups in it.
func (m *Memory) changed(folders []folder) bool {
	return slices.ContainsFunc(folders, func(f folder) bool { return m.stateOf(f) != f.state })
}

// Below the cgroups of containers, which crun divides, and systemd or a container runtime in them, so many levels and
// cgroups of a pod are read: they are read with each look at a pod that grows. So many are examined, of those among so
// many entries of a directory: a container may have made any number.
const (
	nestedLevels   = 3
	nestedCount    = 8
	nestedExamined = 2 * nestedCount
	nestedEntries  = 256
)

// podFiles are the files of one pod.
type podFiles struct {
	uid types.UID
	// dir is the cgroup that counts memory.
	dir   string
	usage openfile.File
	// swap is the counter of swap on v2.
	swap openfile.File
	// processes counts the tasks of the pod, on both versions (kernel, cgroup-v1/pids and cgroup-v2, "PID").
	processes openfile.File
	// stats are memory.stat of the containers and of the cgroups below these, which are first, and as the last one that of
	// the pod; nil until they are needed. folders are that of the pod and those below it as they were then, compared is
	// when they were last compared with the present ones.
	stats    []openfile.File
	folders  []folder
	compared time.Time
	// examined is the number of cgroups below those of the containers that were examined, nested of those that are read.
	// without are the files memory.stat of the others, which do not exist: the memory controller may be enabled for a
	// cgroup after it was created (kernel, cgroup-v2, "cgroup.subtree_control").
	examined, nested int
	without          []string
	// found is false for a pod that the current search has not found.
	found bool
}

func (m *Memory) filesOfPod(uid, dir string) podFiles {
	// Below the root of its own tree the cgroup that counts processes has the same path.
	processes := filepath.Join(m.processes, strings.TrimPrefix(dir, m.root), "pids.current")
	return podFiles{
		uid: types.UID(uid), dir: dir, usage: openfile.New(filepath.Join(dir, m.names.usage)),
		swap: openfile.New(filepath.Join(dir, m.names.swapFile)), processes: openfile.New(processes),
	}
}

func (p *podFiles) close() {
	p.usage.Close()
	p.swap.Close()
	p.processes.Close()
	p.closeStats()
}

func (p *podFiles) closeStats() {
	for i := range p.stats {
		p.stats[i].Close()
	}
	p.stats, p.folders, p.without, p.examined, p.nested = nil, nil, nil, 0, 0
}

// compareEvery is the longest time between two comparisons of the cgroups below a pod that is read in quick succession.
// A container may make and remove cgroups in its own all the time.
const compareEvery = time.Second

// closeChanged closes memory.stat of the containers of a pod if there are others, or other cgroups below them, so that
// they are searched for again. It compares those below if that is due, or if all is true.
func (m *Memory) closeChanged(p *podFiles, all bool) {
	if p.stats == nil {
		return
	}
	now := m.now()
	all = all || now.Sub(p.compared).Abs() >= compareEvery
	if all {
		p.compared = now
	}
	if m.changed(p.folders[:1]) || all && (m.changed(p.folders[1:]) || p.withoutChanged()) {
		p.closeStats()
	}
}

// readContainers reads memory.stat of the containers of a pod, before its own is read: see Memory. If one cannot be
// read, the containers are searched for again, once; one that ends meanwhile is left out.
func (m *Memory) readContainers(p *podFiles) {
	for tries := 0; ; tries++ {
		if p.stats == nil {
			m.openStats(p)
		}
		failed := false
		for i := range p.stats[:len(p.stats)-1] {
			_, err := m.files.read(&p.stats[i])
			failed = failed || err != nil
		}
		if !failed || tries > 0 {
			return
		}
		p.closeStats()
	}
}

// statOf reads memory.stat of a pod whose containers were read.
func (m *Memory) statOf(p *podFiles) ([]byte, error) {
	return m.files.read(&p.stats[len(p.stats)-1])
}

// openStats sets the files memory.stat of a pod, its own as the last one.
func (m *Memory) openStats(p *podFiles) {
	p.folders, p.compared = append(p.folders, m.folderAt(p.dir)), m.now()
	m.openBelow(p, 0, p.dir, nestedLevels)
	p.stats = append(p.stats, openfile.New(filepath.Join(p.dir, m.names.stat)))
}

// openBelow adds the files memory.stat of the cgroups below one, the deepest first: what changes in those reaches the
// ones above when they are read. It goes so many levels deeper. Where the cgroup, one of folders, cannot be searched,
// the next comparison makes it try again.
func (m *Memory) openBelow(p *podFiles, at int, dir string, levels int) {
	nested, most := levels < nestedLevels, -1
	if nested {
		most = nestedEntries
	}
	names, err := foldersIn(dir, most)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.folders[at].state = folderState{}
	}
	for _, name := range names { // Without containers the pod is read all the same.
		path := filepath.Join(dir, name)
		stat := filepath.Join(path, m.names.stat)
		if nested && !p.examine(stat) {
			continue
		}
		f := m.folderAt(path)
		p.folders = append(p.folders, f)
		if levels > 0 && f.state.links != noneBelow {
			m.openBelow(p, len(p.folders)-1, path, levels-1)
		}
		p.stats = append(p.stats, openfile.New(stat))
	}
}

// foldersIn returns the names of the directories in one, sorted, among so many of its entries; among all if most is
// negative. With an error it returns those that were read before.
func foldersIn(dir string, most int) (names []string, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(most)
	if errors.Is(err, io.EOF) { // There is none.
		err = nil
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// examine reports whether memory.stat of a cgroup below that of a container is to be read: it exists, and not too many
// are read.
func (p *podFiles) examine(stat string) bool {
	if p.nested == nestedCount || p.examined == nestedExamined {
		return false
	}
	p.examined++
	if unix.Access(stat, unix.R_OK) != nil {
		p.without = append(p.without, stat)
		return false
	}
	p.nested++
	return true
}

// noneBelow is the number of links of a directory without others below it: its name, and its own entry for itself.
const noneBelow = 2

// withoutChanged reports whether cgroups below the containers of a pod that did not count memory do so, or were
// removed.
func (p *podFiles) withoutChanged() bool {
	return slices.ContainsFunc(p.without, func(stat string) bool {
		return unix.Access(stat, unix.R_OK) == nil || unix.Access(filepath.Dir(stat), unix.F_OK) != nil
	})
}

// stateOf returns the present state of a directory, zero if it cannot be read. It allocates nothing.
func (m *Memory) stateOf(f folder) folderState {
	if err := m.files.calls.State(f.path, &m.folder); err != nil {
		return folderState{}
	}
	return folderState{inode: m.folder.Ino, links: uint64(m.folder.Nlink)}
}

// readPod reads a pod.
func (m *Memory) readPod(p *podFiles, how snapshot.Counting) (*snapshot.Memory, bool) {
	pod, err := m.readMemory(p, how)
	if err != nil {
		return nil, false
	}
	if n, err := m.files.count(&p.processes); err == nil && n <= most {
		pod.Processes = snapshot.Known(snapshot.PIDs(n), m.now())
	}
	return &pod.Memory, true
}

// readMemory reads the memory of a pod, its containers first. Its swap counts as used when free swap counts as
// available. Resident is Unknown if the kernel does not say how much of the page cache is active.
func (m *Memory) readMemory(p *podFiles, how snapshot.Counting) (r snapshot.PodMemory, err error) {
	m.closeChanged(p, false)
	m.readContainers(p)
	// Page cache that is added between these two would be subtracted from a usage that does not have it.
	usage, err := m.files.count(&p.usage)
	if err != nil {
		return r, err
	}
	stat, err := m.statOf(p)
	if err != nil {
		return r, err
	}
	at := m.now()
	inactive, ok := field(stat, m.names.cache.inactive)
	if !ok {
		return r, fmt.Errorf("%s: %w of inactive file pages", p.dir, errNoField)
	}
	r.Resident = snapshot.Unknown
	if active, ok := field(stat, m.names.cache.active); ok {
		r.Resident = snapshot.Bytes(max(0, usage-inactive-active))
	}
	anonymous, known := field(stat, m.names.anonymous)
	swapped := int64(0)
	if how.Swap {
		swapped = m.swapOf(p, stat)
	}
	r.WorkingSet = snapshot.Known(snapshot.Bytes(max(0, usage-inactive)+swapped), at)
	if known {
		r.Anonymous = snapshot.Known(snapshot.Bytes(anonymous+swapped), at)
	}
	return r, nil
}

// swapOf returns how much of a cgroup is in swap; zero where swap is not accounted. It invalidates stat.
func (m *Memory) swapOf(p *podFiles, stat []byte) int64 {
	if m.names.swap != "" {
		n, _ := field(stat, m.names.swap)
		return n
	}
	n, err := m.files.count(&p.swap)
	if err != nil || n > most {
		return 0
	}
	return n
}

// scanPods searches for the cgroups of pods. The files of those that are known stay open, and are opened again where
// containers were started or have ended.
func (m *Memory) scanPods() {
	l := &m.open
	for i := range l.byPod {
		l.byPod[i].found = false
	}
	m.recognized, m.unrecognized = 0, m.unrecognized[:0]
	before := l.classes
	l.classes, l.searched, l.blind, l.failed = nil, l.searched[:0], false, false
	m.scanBelow(m.pods)
	m.keepOpen(before)
	l.byPod = slices.DeleteFunc(l.byPod, func(p podFiles) bool {
		gone := !p.found && !l.failed
		if gone {
			p.close()
		}
		return gone
	})
}

// keepOpen uses files of QoS classes from before the present search, and closes the others.
func (m *Memory) keepOpen(before []openfile.File) {
	for i := range before {
		same := func(f openfile.File) bool { return f.Path() == before[i].Path() }
		if j := slices.IndexFunc(m.open.classes, same); j >= 0 {
			m.open.classes[j] = before[i]
		} else {
			before[i].Close()
		}
	}
}

// podsChanged reports whether pods were started or removed since the last search. It allocates nothing.
func (m *Memory) podsChanged() bool { return m.changed(m.open.searched) }

// scanBelow searches in a cgroup. It ignores cgroups that are not of pods beside those that are.
func (m *Memory) scanBelow(dir string) {
	entries, err := m.search(dir)
	if err != nil {
		m.open.blind = true
		m.open.failed = m.open.failed || !errors.Is(err, os.ErrNotExist)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var others []string
	recognized := false
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if uid, isPod := m.cgroups.podUID(e.Name()); isPod {
			m.recognized, recognized = m.recognized+1, true
			m.found(uid, path)
			continue
		}
		if m.cgroups.isQOSClass(e.Name()) {
			recognized = true
			m.open.classes = append(m.open.classes, openfile.New(filepath.Join(path, m.names.stat)))
			m.scanBelow(path)
			continue
		}
		others = append(others, path)
	}
	if !recognized {
		m.unrecognized = append(m.unrecognized, others...)
	}
}

// search returns what is in a cgroup, and records the state of that before. With an error it returns what it has read
// before.
func (m *Memory) search(dir string) ([]os.DirEntry, error) {
	opened, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	m.files.calls.Told = !openfile.OfKernel(int(opened.Fd()))
	f := m.folderAt(dir)
	m.open.searched = append(m.open.searched, f)
	entries, err := opened.ReadDir(-1)
	links := uint64(noneBelow)
	for _, e := range entries {
		if e.IsDir() {
			links++
		}
	}
	// The links of lxcfs do not count directories, nor do those of overlayfs.
	m.open.blind = m.open.blind || f.state.links != links
	return entries, err
}

// found records that a search has found a pod.
func (m *Memory) found(uid, dir string) {
	l := &m.open
	i, known := slices.BinarySearchFunc(l.byPod, dir, func(p podFiles, dir string) int {
		return strings.Compare(p.dir, dir)
	})
	if !known {
		l.byPod = slices.Insert(l.byPod, i, m.filesOfPod(uid, dir))
	}
	l.byPod[i].found = true
	m.closeChanged(&l.byPod[i], true)
}
