// Package architecture holds the rules about which package may import which. Each is a row of a table with its reason.
package architecture

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/plimsoll-project/plimsoll/"

// Rings, from the inside out. A package imports only packages of its own ring or of rings further in.
const (
	pure = iota // decisions on values: no I/O, no clock, no goroutine, no logger, no feature gate
	contract
	driver
	adapter
	composition
	outside // tests and tools
)

// rings assigns every package of the program. A package that is missing fails the test: decide where it belongs.
var rings = []struct {
	pkg  string
	ring int
	why  string
}{
	{"pkg/apis/pressure/v1alpha1", pure, "an API type can be imported by anybody"},
	{"pkg/kubelet/podlifecycle", pure, "the truth about each pod must be testable without one"},
	{"pkg/kubelet/podstatus", pure, "a status is a function of what is known"},
	{"pkg/kubelet/snapshot", pure, "facts, immutable"},
	{"pkg/kubelet/eviction/policy", pure, "who is evicted, and why, can be replayed from a snapshot"},
	{"pkg/kubelet/preemption/plan", pure, "the victims can be compared with the optimum"},
	{"pkg/kubelet/escalation", pure, "what is done about a pod that does not stop, and when, can be tested without waiting"},
	{"pkg/kubelet/nodeshutdown/plan", pure, "in which order pods are stopped, and which of them return, can be tested without a shutdown"},
	{"pkg/kubelet/reclaim/plan", pure, "which images and containers go can be compared with stock's choice"},
	{"pkg/kubelet/paths", contract, "names of files that stock shares with us"},
	{"pkg/kubelet/podview", contract, "questions about pods, answered from what it is given"},
	{"pkg/kubelet/podsync", driver, "carries out what the lifecycle commands"},
	{"pkg/kubelet/podsync/deadline", driver, "ends pods whose time is over"},
	{"pkg/kubelet/terminations", driver, "what the agent has begun, on disk over a restart"},
	{"pkg/kubelet/podworkers", driver, "drives the lifecycle; imports podsync for the words of its requests"},
	{"pkg/kubelet/admission", driver, "puts the admit handlers in order"},
	{"pkg/kubelet/preemption", driver, "carries out a plan through the pod workers"},
	{"pkg/kubelet/eviction", driver, "the loop around the policy"},
	{"pkg/kubelet/nodeshutdown", driver, "stops the pods when the machine goes down"},
	{"pkg/kubelet/syncloop", driver, "turns events into updates of the pod workers"},
	{"pkg/kubelet/housekeeping", driver, "removes what belongs to no pod"},
	{"pkg/kubelet/eviction/notify", driver, "the kernel's notifications, which wake the eviction loop"},
	{"pkg/kubelet/reclaim", driver, "removes images, which nobody else does, and dead containers when there is need"},
	{"pkg/kubelet/snapshot/collect", adapter, "reads statistics and cgroup files"},
	{"pkg/kubelet/podstatus/generator", adapter, "collects the facts of a status from stock managers"},
	{"pkg/kubelet/nodeshutdown/logind", adapter, "speaks to the login manager"},
	{"pkg/kubelet/cgroupkill", adapter, "kills past the runtime: cgroup files and pidfds"},
	{"pkg/kubelet/containerspec", adapter, "the runtime manager's helper"},
	{"pkg/kubelet/nodestatus", adapter, "the Node object"},
	{"pkg/kubelet/netutil", adapter, "iptables"},
	{"pkg/kubelet/runtimestate", adapter, "the runtime's state"},
	{"pkg/kubelet/server", adapter, "HTTP and gRPC"},
	{"pkg/kubelet/pressureconfig", adapter, "reads the file of our own settings"},
	{"pkg/kubelet/volumehost", adapter, "what volume plugins see"},
	{"pkg/kubelet", composition, "puts everything together"},
	{"cmd/kubelet", composition, "the program"},
	{"cmd/kubelet/app", composition, "settings and the outer world"},
}

// forbidden imports hold for the program, not for tests.
var forbidden = []struct {
	pkg string
	why string
}{
	{"k8s.io/kubernetes/pkg/kubelet", "the stock kubelet is what this program replaces; in tests it is the oracle"},
	{"k8s.io/kubernetes/pkg/kubelet/eviction", "replaced by pkg/kubelet/eviction; the types in eviction/api are fine"},
	{"k8s.io/kubernetes/pkg/kubelet/preemption", "replaced by pkg/kubelet/preemption"},
	{"k8s.io/kubernetes/pkg/kubelet/nodeshutdown", "replaced by pkg/kubelet/nodeshutdown; the calls to logind in nodeshutdown/systemd are fine"},
	{"k8s.io/kubernetes/cmd/kubelet/app", "it is the stock kubelet's composition and imports its root package"},
}

// pureMayImport are the prefixes a pure package may import beside std and other pure packages.
var pureMayImport = []struct {
	prefix string
	why    string
}{
	{"k8s.io/api/", "the objects themselves"},
	{"k8s.io/apimachinery/pkg/", "quantities, sets, equality"},
	{"k8s.io/kubelet/pkg/apis/", "statistics and their types"},
	{"k8s.io/cri-api/pkg/apis/runtime/", "the runtime's types"},
	{"k8s.io/component-helpers/", "priorities and requests of pods"},
	{"k8s.io/kubernetes/pkg/api/v1/", "helpers on pods"},
	{"k8s.io/kubernetes/pkg/apis/core/", "QoS classes"},
	{"k8s.io/kubernetes/pkg/apis/scheduling", "names of priorities"},
	{"k8s.io/kubernetes/pkg/kubelet/container", "the runtime's types; only podstatus needs them"},
	{"k8s.io/kubernetes/pkg/kubelet/eviction/api", "names of signals"},
	{"k8s.io/kubernetes/pkg/kubelet/types", "kinds of updates, critical and static pods"},
	{"k8s.io/kubernetes/pkg/kubelet/util/format", "words in messages"},
	{"k8s.io/kubernetes/pkg/kubelet/util/sliceutils", "order of pods"},
	{"k8s.io/utils/", "small helpers"},
}

// pureStdForbidden are standard packages that reach the world.
var pureStdForbidden = []string{"os", "os/exec", "net", "net/http", "syscall", "log", "log/slog", "io/fs", "math/rand", "math/rand/v2", "runtime"}

// exceptions are imports that a rule forbids and that stay, each with the reason.
var exceptions = map[[2]string]string{
	{"pkg/kubelet/podstatus", "k8s.io/kubernetes/pkg/kubelet/status"}: "stock's condition generators; differential tests hold the result",
	{"pkg/kubelet/podstatus", "k8s.io/kubernetes/pkg/util/pod"}:       "replaces a condition in a list",
	{"pkg/kubelet/podstatus", "net"}:                                  "net.IP is how node addresses are given; nothing is resolved or dialled",
	{"pkg/kubelet/eviction/policy", "k8s.io/klog/v2"}:                 "the matcher of tolerations wants a logger and is given one that discards",
	{"pkg/kubelet/snapshot", "k8s.io/kubernetes/pkg/volume/util"}:     "knows which volumes are local ephemeral storage",
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./cmd/...", "./pkg/...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func ringOf(name string) (int, bool) {
	for _, r := range rings {
		if r.pkg == name {
			return r.ring, true
		}
	}
	return outside, false
}

func TestRings(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		ring, ok := ringOf(name)
		if !ok {
			t.Errorf("%s is in no ring: decide where it belongs", name)
			continue
		}
		for _, imported := range p.Imports {
			inner, ours := strings.CutPrefix(imported, module)
			if to, _ := ringOf(inner); ours && to > ring {
				t.Errorf("%s imports %s, which is further out", name, inner)
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range forbidden {
			if slices.Contains(p.Imports, f.pkg) {
				t.Errorf("%s imports %s: %s", strings.TrimPrefix(p.ImportPath, module), f.pkg, f.why)
			}
		}
	}
}

func TestPurePackagesReachNothing(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if ring, _ := ringOf(name); ring != pure {
			continue
		}
		for _, imported := range p.Imports {
			if _, excepted := exceptions[[2]string{name, imported}]; !excepted && !purely(imported) {
				t.Errorf("%s is pure and imports %s", name, imported)
			}
		}
	}
}

func purely(imported string) bool {
	if inner, ours := strings.CutPrefix(imported, module); ours {
		ring, _ := ringOf(inner)
		return ring == pure
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return !slices.Contains(pureStdForbidden, imported)
	}
	for _, allowed := range pureMayImport {
		if strings.HasPrefix(imported, allowed.prefix) {
			return true
		}
	}
	return false
}

// In tests time passes in bubbles of testing/synctest only: a test that sleeps outside of one is slow, or flaky, or both.
func TestSleepOnlyInBubbles(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "grep", "-l", "time[.]Sleep(", "--", "*_test.go", ":!test/architecture").Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatal(err)
	}
	for _, file := range strings.Fields(string(out)) {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `"testing/synctest"`) {
			t.Errorf("%s sleeps outside of a bubble: await a condition", file)
		}
	}
}

// Two who remove images from two views of the node would remove what the other one keeps.
func TestImagesAreRemovedInOnePlace(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		files, err := filepath.Glob("../../" + name + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			switch calls := strings.Contains(string(text), ".RemoveImage("); {
			case strings.HasSuffix(file, "_test.go") || !calls:
			case name == "pkg/kubelet/reclaim":
				found++
			default:
				t.Errorf("%s removes images; only pkg/kubelet/reclaim does", file)
			}
		}
	}
	if found == 0 {
		t.Error("nobody removes images")
	}
}

func TestExceptionsAreNeeded(t *testing.T) {
	pkgs := packages(t)
	for exception := range exceptions {
		used := slices.ContainsFunc(pkgs, func(p pkg) bool {
			return p.ImportPath == module+exception[0] && slices.Contains(p.Imports, exception[1])
		})
		if !used {
			t.Errorf("the exception %v is not needed any more", exception)
		}
	}
}
