package topology_test

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"github.com/google/cadvisor/utils/sysfs"
	"github.com/google/cadvisor/utils/sysinfo"
)

// machines are the files below testdata with trees of sysfs. Each says in its head whether it was recorded or made by
// hand: only 1x1 was recorded.
var machines = []string{"1x1", "2x1", "2x2", "1x4"}

// machine returns what cAdvisor reads of a tree of sysfs.
func machine(t testing.TB, name string) *cadvisorapi.MachineInfo {
	t.Helper()
	tree := tree{FS: readTree(t, filepath.Join("testdata", name+".sysfs"))}
	nodes, cpus, err := sysinfo.GetNodesInfo(tree)
	if err != nil {
		t.Fatal(err)
	}
	info := &cadvisorapi.MachineInfo{NumCores: cpus, Topology: nodes}
	for _, n := range nodes {
		info.MemoryCapacity += n.Memory
	}
	return info
}

// readTree reads lines "path: content".
func readTree(t testing.TB, file string) fs.FS {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for line := range strings.Lines(string(data)) {
		name, content, found := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if strings.HasPrefix(line, "#") {
			continue
		}
		if !found {
			t.Fatalf("%s: %q is no line of a tree", file, line)
		}
		files[name] = &fstest.MapFile{Data: []byte(content + "\n")}
	}
	return files
}

// tree is what cAdvisor reads sysfs through. The calls that are not implemented are those that it does not make for the
// topology.
type tree struct {
	sysfs.SysFs
	FS fs.FS
}

const nodesPath = "/sys/devices/system/node"

func (t tree) glob(pattern string) (paths []string, err error) {
	names, err := fs.Glob(t.FS, strings.TrimPrefix(pattern, "/"))
	for _, name := range names {
		paths = append(paths, "/"+name)
	}
	return paths, err
}

func (t tree) read(name ...string) (string, error) {
	data, err := fs.ReadFile(t.FS, strings.TrimPrefix(path.Join(name...), "/"))
	return strings.TrimSpace(string(data)), err
}

func (t tree) GetNodesPaths() ([]string, error)          { return t.glob(nodesPath + "/node*[0-9]") }
func (t tree) GetCPUsPaths(dir string) ([]string, error) { return t.glob(dir + "/cpu*[0-9]") }
func (t tree) GetCoreID(cpu string) (string, error)      { return t.read(cpu, "topology/core_id") }
func (t tree) GetMemInfo(node string) (string, error)    { return t.read(node, "meminfo") }
func (t tree) GetDistances(node string) (string, error)  { return t.read(node, "distance") }
func (t tree) GetBookID(cpu string) (string, error)      { return t.read(cpu, "topology/book_id") }
func (t tree) GetDrawerID(cpu string) (string, error)    { return t.read(cpu, "topology/drawer_id") }
func (t tree) GetHugePagesNr(dir, page string) (string, error) {
	return t.read(dir, page, "nr_hugepages")
}
func (t tree) IsCPUOnline(string) bool { return true }

func (t tree) GetCPUPhysicalPackageID(cpu string) (string, error) {
	return t.read(cpu, "topology/physical_package_id")
}

func (t tree) GetCaches(int) ([]os.FileInfo, error) {
	return nil, errors.New("the trees have no caches")
}

func (t tree) GetHugePagesInfo(dir string) (list []os.FileInfo, err error) {
	entries, err := fs.ReadDir(t.FS, strings.Trim(dir, "/"))
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, err
}

// The trees are what their names say: sockets x NUMA nodes of each; 1x4 has a node without CPUs in addition.
func TestTrees(t *testing.T) {
	for _, name := range machines {
		sockets := map[int]int{}
		for _, n := range machine(t, name).Topology {
			if len(n.Cores) > 0 {
				sockets[n.Cores[0].SocketID]++
			}
		}
		want, per, _ := strings.Cut(name, "x")
		if strconv.Itoa(len(sockets)) != want {
			t.Errorf("%s has %d sockets", name, len(sockets))
		}
		for socket, nodes := range sockets {
			if strconv.Itoa(nodes) != per {
				t.Errorf("%s: socket %d has %d NUMA nodes", name, socket, nodes)
			}
		}
	}
}
