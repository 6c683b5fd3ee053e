package crossing

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/opencontainers/cgroups"
)

// setShares gives BestEffort pods the CPU share that they have from a kubelet, and this process, which stands in for
// the agent, that which docs/operations.md gives the unit of the agent.
func (n *node) setShares() error {
	name, pods, agent := "cpu.shares", "2", "10240"
	if n.unified {
		name, pods, agent = "cpu.weight", "1", "1000"
	}
	cpu := n.mounts["cpu"]
	if err := os.WriteFile(filepath.Join(cpu, n.all(), "besteffort", name), []byte(pods), 0); err != nil {
		return err
	}
	dir := filepath.Join(cpu, n.agent())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{dir, filepath.Dir(dir)} { // As the slice of the unit, beside other services.
		if err := os.WriteFile(filepath.Join(dir, name), []byte(agent), 0); err != nil {
			return err
		}
	}
	own, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	n.own = filepath.Join(cpu, own["cpu"])
	if n.unified {
		n.own = filepath.Join(cpu, own[""])
	}
	return enter(dir)
}

// enter moves this process to a cgroup.
func enter(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// agent is the path of the cgroup of this process, for its share of the CPUs.
func (n *node) agent() string { return n.root + "/agent" }
