//go:build e2e

package e2enode

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	systemdutil "github.com/coreos/go-systemd/v22/util"
	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/kubelet/util"
)

// need is a fact of the node without which a test has no meaning. That a node is slow is none.
type need struct {
	// what the node must have, as in "needs ...".
	what string
	met  func() bool
}

// mappedOverlay is for pods in user namespaces.
var mappedOverlay = need{"Linux 5.19, whose overlayfs can map users", func() bool { return linuxAtLeast(5, 19) }}

// mappedTmpfs is for volumes in memory, secrets among them, of pods in user namespaces.
var mappedTmpfs = need{"Linux 6.3, whose tmpfs can map users", func() bool { return linuxAtLeast(6, 3) }}

// unified is for what only cgroup v2 has.
var unified = need{"cgroup v2", util.IsCgroup2UnifiedMode}

// systemd is for tests about what systemd does to control groups.
var systemd = need{"systemd as process 1", systemdutil.IsRunningSystemd}

// needs are the tests that need something of the node. All others run on every node.
var needs = map[string][]need{
	"TestFencesWhileSystemdReloads":     {systemd},
	"TestLimitedSwap":                   {unified},
	"TestMemoryQoS":                     {unified},
	"TestOOMKillOfAContainer":           {unified},
	"TestStallsAreReported":             {unified},
	"TestUserNamespacesSurviveRestarts": {mappedOverlay},
}

// linuxAtLeast returns whether the kernel has that version or a later one.
func linuxAtLeast(major, minor int) bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	var gotMajor, gotMinor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &gotMajor, &gotMinor); err != nil {
		return false
	}
	return gotMajor > major || gotMajor == major && gotMinor >= minor
}

// selectTests leaves out the tests that have no meaning on this node, and says which and why.
func selectTests() error {
	flag.Parse()
	var left []string
	for _, test := range slices.Sorted(maps.Keys(needs)) {
		var unmet []string
		for _, need := range needs[test] {
			if !need.met() {
				unmet = append(unmet, need.what)
			}
		}
		if len(unmet) > 0 {
			left = append(left, test)
			fmt.Fprintf(os.Stdout, "not meant for this node: %s: needs %s\n", test, strings.Join(unmet, ", "))
		}
	}
	if len(left) == 0 {
		return nil
	}
	skip := flag.Lookup("test.skip")
	pattern := "^(" + strings.Join(left, "|") + ")$"
	if given := skip.Value.String(); given != "" {
		pattern = given + "|" + pattern
	}
	return skip.Value.Set(pattern)
}
