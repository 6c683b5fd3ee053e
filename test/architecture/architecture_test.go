// Package architecture holds the rules about what the program's packages may import and use. Each is a row of a table
// with its reason.
package architecture

import (
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
	{
		"pkg/kubelet/escalation", pure,
		"what is done about a pod that does not stop, and when, can be tested without waiting",
	},
	{
		"pkg/kubelet/nodeshutdown/plan", pure,
		"in which order pods are stopped, and which of them return, can be tested without a shutdown",
	},
	{"pkg/kubelet/reclaim/plan", pure, "which images and containers go can be compared with stock's choice"},
	{"pkg/kubelet/paths", contract, "names of files that stock shares with us"},
	{
		"pkg/kubelet/podkill", contract,
		"requests to stop a pod and their answers, for those that send them and for the pod workers",
	},
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
	{"pkg/kubelet/allocations", adapter, "stock's allocation manager, whose readers wait for no disk"},
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
	{
		"k8s.io/kubernetes/pkg/kubelet/nodeshutdown",
		"replaced by pkg/kubelet/nodeshutdown; the calls to logind in nodeshutdown/systemd are fine",
	},
	{"k8s.io/kubernetes/cmd/kubelet/app", "it is the stock kubelet's composition and imports its root package"},
}

// pureMayImport are the prefixes a pure package may import beside std and other pure packages.
var pureMayImport = []struct {
	prefix string
	why    string
}{
	{"k8s.io/api/", "the objects themselves"},
	{"k8s.io/apimachinery/pkg/api/", "quantities, equality"},
	{"k8s.io/apimachinery/pkg/apis/", "metadata of objects"},
	{"k8s.io/apimachinery/pkg/labels", "selectors"},
	{"k8s.io/apimachinery/pkg/runtime", "kinds of objects"},
	{"k8s.io/apimachinery/pkg/types", "names and UIDs"},
	{"k8s.io/apimachinery/pkg/util/sets", "sets"},
	{"k8s.io/apimachinery/pkg/util/validation", "lists of errors, each with a path"},
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
	{"k8s.io/utils/lru", "a cache"},
	{"k8s.io/utils/net", "families of addresses"},
}

// pureStdForbidden are prefixes of standard packages that reach outside the process, or whose results differ from run
// to run.
var pureStdForbidden = []string{
	"crypto/rand", "io/fs", "io/ioutil", "log", "math/rand", "net/http", "os", "path/filepath", "plugin", "runtime",
	"syscall", "testing",
}

// pureMustNotUse are functions that a pure package may not refer to although it may import their package.
var pureMustNotUse = []struct {
	pkg   string
	names []string
	why   string
}{
	{
		"time", []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
		"time is a parameter in pure packages",
	},
	{"k8s.io/apimachinery/pkg/apis/meta/v1", []string{"Now", "NowMicro"}, "time is a parameter in pure packages"},
}

// exceptions are imports that a rule forbids and that stay, each with the reason.
var exceptions = map[[2]string]string{
	{"pkg/kubelet/podstatus", "k8s.io/kubernetes/pkg/kubelet/status"}: "stock's condition generators; differential " +
		"tests hold the result",
	{"pkg/kubelet/podstatus", "k8s.io/kubernetes/pkg/util/pod"}: "replaces a condition in a list",
	{"pkg/kubelet/podstatus", "net"}: "net.IP is how node addresses are given; nothing is " +
		"resolved or dialled",
	{"pkg/kubelet/eviction/policy", "k8s.io/klog/v2"}: "the matcher of tolerations wants a logger and is " +
		"given one that discards",
	{"pkg/kubelet/snapshot", "k8s.io/kubernetes/pkg/volume/util"}: "knows which volumes are local ephemeral storage",
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
	for _, p := range program(t) {
		report(t, importsFurtherOut(p))
	}
}

func importsFurtherOut(p pkg) (faults []string) {
	ring, ok := ringOf(p.name)
	if !ok {
		return []string{p.name + " is in no ring: decide where it belongs"}
	}
	for _, imported := range p.imports {
		inner, ours := strings.CutPrefix(imported, module)
		if to, _ := ringOf(inner); ours && to > ring {
			faults = append(faults, p.name+" imports "+inner+", which is further out")
		}
	}
	return faults
}

// Test support and tools are held to it as well: only files of tests may use the stock kubelet.
func TestForbiddenImports(t *testing.T) {
	for _, p := range append(program(t), packagesBelow(t, "test")...) {
		report(t, importsForbidden(p))
	}
}

func importsForbidden(p pkg) (faults []string) {
	for _, f := range forbidden {
		if slices.Contains(p.imports, f.pkg) {
			faults = append(faults, p.name+" imports "+f.pkg+": "+f.why)
		}
	}
	return faults
}

func TestPurePackagesReachNothing(t *testing.T) {
	for _, p := range program(t) {
		if ring, _ := ringOf(p.name); ring == pure {
			report(t, impurities(p))
		}
	}
}

func impurities(p pkg) (faults []string) {
	for _, imported := range p.imports {
		if _, excepted := exceptions[[2]string{p.name, imported}]; !excepted && !purely(imported) {
			faults = append(faults, p.name+" is pure and imports "+imported)
		}
	}
	for _, f := range p.files {
		if startsGoroutine(f) {
			faults = append(faults, p.name+" is pure and starts goroutines")
		}
		for _, rule := range pureMustNotUse {
			for _, name := range usesOf(f, rule.pkg) {
				if name == "." || slices.Contains(rule.names, name) {
					faults = append(faults, p.name+" uses "+rule.pkg+"."+name+": "+rule.why)
				}
			}
		}
	}
	return faults
}

func purely(imported string) bool {
	if inner, ours := strings.CutPrefix(imported, module); ours {
		ring, _ := ringOf(inner)
		return ring == pure
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return imported != "net" && !slices.ContainsFunc(pureStdForbidden, func(prefix string) bool {
			return imported == prefix || strings.HasPrefix(imported, prefix+"/")
		})
	}
	for _, allowed := range pureMayImport {
		if strings.HasPrefix(imported, allowed.prefix) {
			return true
		}
	}
	return false
}

func TestExceptionsAreNeeded(t *testing.T) {
	pkgs := program(t)
	for exception := range exceptions {
		used := slices.ContainsFunc(pkgs, func(p pkg) bool {
			return p.name == exception[0] && slices.Contains(p.imports, exception[1])
		})
		if !used {
			t.Errorf("the exception %v is not needed any more", exception)
		}
	}
}

// Each rule finds what it forbids. The packages here are those of a program that breaks it.
func TestRulesFindViolations(t *testing.T) {
	const inPure, inDriver = "pkg/kubelet/eviction/policy", "pkg/kubelet/eviction"
	for _, tc := range []struct {
		name, text string
		rule       func(pkg) []string
		fault      string
	}{
		{"pkg/kubelet/new", ``, importsFurtherOut, "is in no ring"},
		{
			inPure, `import _ "` + module + inDriver + `"`, importsFurtherOut,
			"imports pkg/kubelet/eviction, which is further out",
		},
		{inDriver, `import _ "k8s.io/kubernetes/pkg/kubelet"`, importsForbidden, "imports k8s.io/kubernetes/pkg/kubelet:"},
		{inDriver, `import _ "k8s.io/kubernetes/pkg/kubelet/eviction"`, importsForbidden, "replaced by pkg/kubelet/eviction"},
		{
			inDriver, `import _ "k8s.io/kubernetes/pkg/kubelet/preemption"`, importsForbidden,
			"replaced by pkg/kubelet/preemption",
		},
		{inDriver, `import _ "k8s.io/kubernetes/cmd/kubelet/app"`, importsForbidden, "stock kubelet's composition"},
		{"pkg/kubelet/escalation", `import _ "k8s.io/klog/v2"`, impurities, "imports k8s.io/klog/v2"},
		{inPure, `import _ "k8s.io/client-go/kubernetes"`, impurities, "imports k8s.io/client-go/kubernetes"},
		{inPure, `import f "k8s.io/apiserver/pkg/util/feature"; var _ = f.DefaultFeatureGate`, impurities, "util/feature"},
		{inPure, `import _ "k8s.io/utils/clock"`, impurities, "imports k8s.io/utils/clock"},
		{inPure, `import "os"; func f() { os.Exit(1) }`, impurities, "imports os"},
		{inPure, `import _ "os/exec"`, impurities, "imports os/exec"},
		{inPure, `import _ "net"`, impurities, "imports net"},
		{inPure, `import _ "math/rand/v2"`, impurities, "imports math/rand/v2"},
		{inPure, `import "time"; var start = time.Now()`, impurities, "uses time.Now: time is a parameter"},
		{inPure, `import t "time"; var clock = t.Since`, impurities, "uses time.Since"},
		{inPure, `import . "time"; var start = Now()`, impurities, "uses time..:"},
		{inPure, `import "time"; func f() { time.Sleep(1) }`, impurities, "uses time.Sleep"},
		{inPure, `import v1 "k8s.io/apimachinery/pkg/apis/meta/v1"; var now = v1.Now()`, impurities, "meta/v1.Now"},
		{inPure, `func f() { go f() }`, impurities, "starts goroutines"},
	} {
		faults := tc.rule(packageOf(t, tc.name, tc.text))
		if len(faults) != 1 || !strings.Contains(faults[0], tc.name) || !strings.Contains(faults[0], tc.fault) {
			t.Errorf("%s, %s: %v, want %s", tc.name, tc.text, faults, tc.fault)
		}
	}
	allowed := packageOf(t, inPure, `import "time"; type timing struct { every time.Duration; at time.Time }`)
	if faults := impurities(allowed); len(faults) > 0 {
		t.Error(faults)
	}
}

func report(t *testing.T, faults []string) {
	t.Helper()
	for _, f := range faults {
		t.Error(f)
	}
}
