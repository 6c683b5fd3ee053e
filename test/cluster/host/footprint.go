package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// sysctls are the kernel settings that a kubelet or the network plugins
// change, as paths below /proc/sys.
var sysctls = []string{
	"kernel/keys/root_maxbytes",
	"kernel/keys/root_maxkeys",
	"kernel/panic",
	"kernel/panic_on_oops",
	"net/ipv4/ip_forward",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
}

// outsideDirs are the directories outside a cluster's own that its parts create at fixed paths. A directory that
// existed before is kept.
var outsideDirs = []string{
	"/etc/cni",
	"/opt/cni",
	"/opt/containerd",
	"/run/containerd",
	"/run/nri",
	"/var/lib/cni",
	"/var/lib/kubelet",
	"/var/log/containers",
	"/var/log/pods",
}

// Footprint is the state of the machine before a cluster changed it, and what of the cluster cannot be found by its
// path.
type Footprint struct {
	// Cgroup is the cgroup that is removed with the cluster. Shared is true if other kubelets would use it as well.
	Cgroup  string            `json:"cgroup"`
	Shared  bool              `json:"shared"`
	Sysctls map[string]string `json:"sysctls"`
	// Absent are the directories of outsideDirs that did not exist.
	Absent []string `json:"absent"`
	// Chains are the firewall chains that existed, as "program table chain".
	Chains []string `json:"chains"`
}

// TakeFootprint records the state of the machine. It must be called before anything is started.
func TakeFootprint() Footprint {
	before := Footprint{Sysctls: map[string]string{}, Chains: listChains()}
	for _, name := range sysctls {
		if data, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
			before.Sysctls[name] = strings.TrimSpace(string(data))
		}
	}
	for _, dir := range outsideDirs {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			before.Absent = append(before.Absent, dir)
		}
	}
	return before
}

// Save writes the footprint to file.
func (f Footprint) Save(file string) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("encode footprint: %w", err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write footprint: %w", err)
	}
	return nil
}

// LoadFootprint reads what Save wrote. The error is fs.ErrNotExist if there is no file.
func LoadFootprint(file string) (Footprint, error) {
	var before Footprint
	data, err := os.ReadFile(file)
	if err != nil {
		return before, fmt.Errorf("read footprint: %w", err)
	}
	if err := json.Unmarshal(data, &before); err != nil {
		return before, fmt.Errorf("read footprint %s: %w", file, err)
	}
	return before, nil
}

// Restore restores settings, directories and firewall chains. No part of the cluster may run any more.
func (f Footprint) Restore() error {
	var errs []error
	for _, name := range sysctls {
		errs = append(errs, f.restoreSysctl(name))
	}
	errs = append(errs, f.removeNewChains())
	for _, dir := range outsideDirs {
		if slices.Contains(f.Absent, dir) {
			errs = append(errs, UnmountUnder(dir), RemoveTree(dir))
		}
	}
	return errors.Join(errs...)
}

// restoreSysctl writes the old value if it has changed. If the kernel does not allow that (in a container), it is no
// error: the change was not allowed either.
func (f Footprint) restoreSysctl(name string) error {
	old, known := f.Sysctls[name]
	file := filepath.Join("/proc/sys", name)
	data, err := os.ReadFile(file)
	if !known || err != nil || strings.TrimSpace(string(data)) == old {
		return nil
	}
	err = os.WriteFile(file, []byte(old), 0o644)
	if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore kernel setting %s: %w", name, err)
	}
	return nil
}

// RemoveLogLinks removes the links in /var/log/containers that point below dir, which a kubelet creates for every
// container.
func RemoveLogLinks(dir string) error {
	const links = "/var/log/containers"
	entries, err := os.ReadDir(links)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list container logs: %w", err)
	}
	for _, entry := range entries {
		link := filepath.Join(links, entry.Name())
		target, err := os.Readlink(link)
		if err != nil || !within(target, dir) {
			continue
		}
		if err := os.Remove(link); err != nil {
			return fmt.Errorf("remove log link: %w", err)
		}
	}
	return nil
}
