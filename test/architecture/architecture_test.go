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

// rings assigns every package of the program to a ring and says in a line what the package does. A package that is
// missing fails the test: decide where it belongs. docs/architecture.md shows this table; after a change run
// "go test ./test/architecture -update".
var rings = []struct {
	pkg  string
	ring int
	what string
}{
	{
		"pkg/apis/pressure/v1alpha1", pure,
		"the configuration file of our own: fields, values, defaults, validation",
	},
	{"pkg/apis/debug/v1alpha1", pure, "the JSON types of our own pages below /debug"},
	{"pkg/apis/node/v1alpha1", pure, "the types of Katalyst's CustomNodeResource"},
	{"pkg/kubelet/podlifecycle", pure, "the state machine of a pod, and the store of the states of all pods"},
	{"pkg/kubelet/podstatus", pure, "computes the status of a pod from what the runtime reports"},
	{"pkg/kubelet/snapshot", pure, "usage and capacity of node and pods at one time, as values"},
	{"pkg/kubelet/decisionlog/trace", pure, "writes decisions about pressure as records, and reads them again"},
	{"pkg/kubelet/decisionlog/simulate", pure, "makes the decisions of a trace again, with the same rules or others"},
	{"pkg/kubelet/strictjson", pure, "decodes JSON that may come from anywhere, within limits"},
	{"pkg/kubelet/eviction/policy", pure, "decides on a snapshot: node conditions, reclaim, victims"},
	{"pkg/kubelet/eviction/settings", pure, "turns both configuration files into the rules of eviction/policy"},
	{"pkg/kubelet/eviction/arbiter", pure, "settles what eviction plugins ask for: requests, questions, conditions"},
	{
		"pkg/kubelet/eviction/plugin/records", pure,
		"eviction records: our own evictions by owner and hour, and which disruption budget counts for a pod",
	},
	{
		"pkg/kubelet/eviction/plugins/rule", pure,
		"what the rules of the eviction plugins in the agent have in common",
	},
	{
		"pkg/kubelet/eviction/plugins/cpupressure", pure,
		"the rule of cpu-pressure: tasks that wait for CPUs, and throttling",
	},
	{
		"pkg/kubelet/eviction/plugins/rootfs", pure,
		"the rules of rootfs-pressure-eviction-plugin and rootfs-overuse-eviction-plugin: writable layers of pods",
	},
	{
		"pkg/kubelet/eviction/plugins/numamemory", pure,
		"the rule of numa-memory-pressure-eviction-plugin: free memory of a NUMA node near its watermarks",
	},
	{
		"pkg/kubelet/eviction/plugins/systemmemory", pure,
		"the rule of system-memory-pressure-eviction-plugin: free memory, kswapd, and stalls of the node and its pods",
	},
	{
		"pkg/kubelet/eviction/plugins/reclaimedresource", pure,
		"the rule of reclaimed-resource-pressure-eviction-plugin: reclaimed pods request more than there is",
	},
	{
		"pkg/kubelet/eviction/plugins/rssoveruse", pure,
		"the rule of rss-overuse-eviction-plugin: a resident set greater than the memory request",
	},
	{"pkg/kubelet/preemption/plan", pure, "chooses the victims that make a critical pod fit"},
	{"pkg/kubelet/escalation", pure, "decides what is done next about a pod that the runtime does not stop in time"},
	{
		"pkg/kubelet/nodeshutdown/plan", pure,
		"decides in which groups pods are stopped when the machine shuts down, and with how much time",
	},
	{"pkg/kubelet/nodestatus/taints", pure, "decides which taints of the Node are changed for eviction plugins"},
	{
		"pkg/kubelet/nodestatus/reported", pure,
		"decides which labels, annotations and extended resources are written for reporter plugins",
	},
	{"pkg/kubelet/reclaim/plan", pure, "decides which images and dead containers are removed"},
	{"pkg/kubelet/reporter/merge", pure, "merges what reporter plugins report into the content of objects"},
	{"pkg/kubelet/reporter/answers", pure, "decides which answers of reporter plugins are served, and for how long"},
	{
		"pkg/kubelet/reporter/topology/zones", pure,
		"makes the topology zones of a CustomNodeResource out of machine, managers and pods",
	},
	{"pkg/kubelet/paths", contract, "names of all files and directories"},
	{"pkg/kubelet/podkill", contract, "requests to stop a pod, and their answers"},
	{"pkg/kubelet/podview", contract, "which pods use resources of the node"},
	{"pkg/apis/evictionplugin/v1alpha1", contract, "the gRPC protocol of eviction plugins, which is Katalyst's"},
	{"pkg/apis/reporterplugin/v1alpha1", contract, "the gRPC protocol of reporter plugins, which is Katalyst's"},
	{"pkg/kubelet/recordfile", driver, "reads a file with one record, and replaces it durably"},
	{"pkg/kubelet/openfile", driver, "reads files of the kernel, which stay open between readings"},
	{"pkg/kubelet/exacttimer", driver, "timers of the kernel, which are late by less than those of the Go runtime"},
	{"pkg/kubelet/shortcall", driver, "system calls of microseconds, which wake up no other thread of the Go runtime"},
	{"pkg/kubelet/plugincalls", driver, "what the drivers of eviction and reporter plugins have in common"},
	{"pkg/kubelet/podsync", driver, "sets a pod up, stops it, and releases what it held, step by step"},
	{"pkg/kubelet/podsync/deadline", driver, "ends pods that run longer than their activeDeadlineSeconds"},
	{"pkg/kubelet/terminations", driver, "records terminations on disk, so that they survive a restart of the agent"},
	{"pkg/kubelet/podworkers", driver, "runs one goroutine per pod, which carries out what podlifecycle commands"},
	{"pkg/kubelet/admission", driver, "admit handlers in order, and the pods that wait for their admission"},
	{"pkg/kubelet/preemption", driver, "has the victims of a critical pod stopped, and waits for them"},
	{
		"pkg/kubelet/eviction/memorywatch", driver,
		"reads exact memory counters between the rounds of eviction, and finds out which pods grow",
	},
	{"pkg/kubelet/eviction", driver, "the loop around eviction/policy: collects stats, carries decisions out"},
	{
		"pkg/kubelet/eviction/plugins/memorygrowth", driver,
		"the eviction plugin memory-growth: requests a pod before memory meets a hard threshold",
	},
	{
		"pkg/kubelet/eviction/plugins", driver,
		"the eviction plugins in the agent: reads the facts for their rules, and answers the calls of the driver",
	},
	{"pkg/kubelet/decisionlog", driver, "keeps decisions about pressure, in memory and in files, and what became of them"},
	{"pkg/kubelet/nodeshutdown", driver, "stops the pods in order when the machine shuts down"},
	{"pkg/kubelet/syncloop", driver, "turns events of sources, runtime and probes into updates of the pod workers"},
	{
		"pkg/kubelet/housekeeping", driver,
		"removes what belongs to no pod: workers, directories, cgroups, mirror pods, dead containers",
	},
	{"pkg/kubelet/eviction/notify", driver, "kernel notifications of memory usage, which wake the eviction loop"},
	{"pkg/kubelet/eviction/plugin", driver, "calls eviction plugins round by round, and keeps what they request"},
	{"pkg/kubelet/eviction/killer", driver, "evicts pods that eviction plugins request through the API server"},
	{"pkg/kubelet/reporter", driver, "polls reporter plugins, reads their streams, and merges their last answers"},
	{
		"pkg/kubelet/reporter/conditions", driver,
		"the reporter plugin eviction-plugin-conditions: conditions of eviction plugins as taints",
	},
	{
		"pkg/kubelet/reporter/pressure", driver,
		"the reporter plugin pressure: how far each eviction signal is from its hard threshold, on the Node",
	},
	{
		"pkg/kubelet/reporter/topology", driver,
		"the reporter plugin kubelet-reporter-plugin: sockets, NUMA nodes, devices, and what pods have of them",
	},
	{"pkg/kubelet/reclaim", driver, "removes unused images and dead containers; nothing else removes images"},
	{"pkg/kubelet/snapshot/collect", adapter, "reads stats and the layout of file systems, and memory from cgroup files"},
	{"pkg/kubelet/podstatus/generator", adapter, "collects from stock's managers what podstatus computes with"},
	{"pkg/kubelet/nodeshutdown/logind", adapter, "D-Bus client of the login manager of systemd"},
	{"pkg/kubelet/allocations", adapter, "stock's allocation manager, with reads from memory"},
	{"pkg/kubelet/cgroupkill", adapter, "kills the processes of a cgroup without the container runtime"},
	{"pkg/kubelet/eviction/fence", adapter, "limits what a pod that is being evicted may still use"},
	{"pkg/kubelet/containerspec", adapter, "what a container is started with: environment, mounts, devices, DNS"},
	{"pkg/kubelet/directories", adapter, "creates the directories of the agent at its start"},
	{"pkg/kubelet/nodestatus", adapter, "registers the Node and updates its status"},
	{"pkg/kubelet/netutil", adapter, "keeps stock's iptables chains"},
	{"pkg/kubelet/runtimestate", adapter, "whether the container runtime is up, its handlers and features"},
	{"pkg/kubelet/server", adapter, "the HTTP and gRPC servers"},
	{"pkg/kubelet/pressureconfig", adapter, "reads our configuration file, at start and after each change"},
	{"pkg/kubelet/pluginhost", adapter, "registers plugins in processes of their own, and calls them"},
	{"pkg/kubelet/pluginhost/review", adapter, "has the API server verify the tokens of plugins and their permissions"},
	{"pkg/kubelet/eviction/plugin/remote", adapter, "calls eviction plugins behind sockets"},
	{
		"pkg/kubelet/reporter/system", adapter,
		"the reporter plugin system-reporter-plugin: properties of the hardware, from proc and sys",
	},
	{"pkg/kubelet/reporter/remote", adapter, "calls reporter plugins behind sockets"},
	{"pkg/kubelet/reporter/publish", adapter, "publishes what reporter plugins report in the CustomNodeResource"},
	{"pkg/kubelet/reporter/checkpoint", adapter, "has the last answers of reporter plugins on disk"},
	{
		"pkg/kubelet/eviction/plugin/records/collect", adapter,
		"makes eviction records: counts evictions, reads disruption budgets",
	},
	{
		"pkg/kubelet/eviction/plugin/notice", adapter,
		"writes files for pods that are given notice instead of being evicted",
	},
	{
		"pkg/kubelet/eviction/plugins/sources", adapter,
		"reads what the rules of the eviction plugins in the agent decide on: files of the kernel, objects",
	},
	{"pkg/kubelet/volumehost", adapter, "the interface of the agent to volume plugins"},
	{"pkg/kubelet", composition, "builds all parts from settings and clients, starts and stops them"},
	{"cmd/kubelet", composition, "the main function"},
	{"cmd/kubectl-pressure", composition, "the main function of the plugin of kubectl"},
	{
		"cmd/kubectl-pressure/app", composition,
		"kubectl pressure: why pods were evicted, how close nodes are to thresholds, what other settings would do",
	},
	{"cmd/kubelet/app", composition, "flags, configuration files, clients, checks at start"},
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

// gatesFile is the only file of the program that may import gatesPackage, whose variables are the feature gates of the
// process.
const (
	gatesFile    = "cmd/kubelet/app/gates.go"
	gatesPackage = "k8s.io/apiserver/pkg/util/feature"
)

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
	var names []string
	for _, p := range program(t) {
		names = append(names, p.name)
		report(t, importsFurtherOut(p))
	}
	for _, r := range rings {
		if !slices.Contains(names, r.pkg) {
			t.Errorf("there is no package %s: remove its row", r.pkg)
		}
	}
}

// clientMayLink are the packages outside the pure ring that kubectl pressure links, each with the reason.
var clientMayLink = map[string]string{
	"cmd/kubectl-pressure":       "its main function",
	"cmd/kubectl-pressure/app":   "its commands",
	"pkg/kubelet/pressureconfig": "reads the same file as the agent, with the same errors",
}

// The client decides with the code of the agent, and has nothing of the rest of the agent.
func TestClientLinksPurePackages(t *testing.T) {
	found := linkedBy(program(t), "cmd/kubectl-pressure")
	report(t, notForTheClient(found))
	for name := range clientMayLink {
		if !slices.Contains(found, name) {
			t.Errorf("kubectl pressure does not link %s any more: remove its row", name)
		}
	}
	if !slices.Contains(found, "pkg/kubelet/eviction/policy") {
		t.Errorf("kubectl pressure is said to decide with pkg/kubelet/eviction/policy; it links %q", found)
	}
	if faults := notForTheClient([]string{"pkg/kubelet/eviction"}); len(faults) != 1 {
		t.Errorf("a link to the eviction manager is reported as %q", faults)
	}
}

func notForTheClient(linked []string) (faults []string) {
	for _, name := range linked {
		if ring, _ := ringOf(name); ring != pure && clientMayLink[name] == "" {
			faults = append(faults, "kubectl pressure links "+name+", which is not pure")
		}
	}
	return faults
}

// linkedBy lists a package and all packages of the program that it imports, also through others, in a fixed order.
func linkedBy(pkgs []pkg, name string) (linked []string) {
	linked = []string{name}
	for i := 0; i < len(linked); i++ {
		at := slices.IndexFunc(pkgs, func(p pkg) bool { return p.name == linked[i] })
		if at < 0 {
			continue
		}
		for _, imported := range pkgs[at].imports {
			if inner, ours := strings.CutPrefix(imported, module); ours && !slices.Contains(linked, inner) {
				linked = append(linked, inner)
			}
		}
	}
	return linked
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

// Feature gates are read where the agent is put together, and are values elsewhere.
func TestFeatureGatesAreReadInOnePlace(t *testing.T) {
	read := false
	for _, p := range append(program(t), packagesBelow(t, "test")...) {
		report(t, readsGates(p))
		read = read || slices.Contains(p.imports, gatesPackage)
	}
	if !read {
		t.Errorf("no file reads the feature gates; %s is said to", gatesFile)
	}
}

func readsGates(p pkg) (faults []string) {
	for i, f := range p.files {
		if name := p.name + "/" + p.fileNames[i]; name != gatesFile && len(localNames(f, gatesPackage)) > 0 {
			faults = append(faults, name+" imports "+gatesPackage+": feature gates are passed as values, from "+gatesFile)
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

// goStatements are the functions that may start a goroutine with a go statement, each with the reason. Other functions
// start goroutines through a wait group, an errgroup or a component of pkg/kubelet, which are waited for.
var goStatements = map[string]string{
	"pkg/kubelet.running.stop": "waits for a wait group with a time limit; ends with the component",
	"pkg/kubelet/cgroupkill.Killer.release": "a call of the kernel without a time limit, which frees the memory of a " +
		"killed process; a kill does not wait for it",
	"pkg/kubelet/eviction.Manager.drain":  "waits for a wait group with a time limit; ends with the last kill or reclaim",
	"pkg/kubelet/eviction.sinks.close":    "waits for a wait group with a time limit; ends with the last sink",
	"pkg/kubelet/podworkers.Workers.Stop": "waits for a wait group with a time limit; ends with the last operation",
	"pkg/kubelet/podworkers.Workers.requestStatus": "the status cache of the PLEG waits without a context; nothing " +
		"waits for the answer of a worker that is asked to stop",
	"pkg/kubelet/podsync.observe": "the runtime manager reads a checkpoint without a context; a kill does not wait for it",
	"pkg/kubelet/podsync.publishTerminating.status": "stock's managers may wait for a disk without a context; a kill " +
		"does not wait for them",
	"pkg/kubelet/nodeshutdown/logind.connection.Watch": "reads signals of the bus; ends with the connection",
	"pkg/kubelet/nodeshutdown/logind.connection.Inhibit": "releases a lock that is granted too late; ends with the " +
		"connection",
	"pkg/kubelet/server.serveHTTP": "waits for it, by a channel that has its error",
	"cmd/kubelet/app.UntilSignal":  "ends with the function that it returns",
	"cmd/kubelet/app.process.lock": "ends with the context of the process",
	"cmd/kubelet/app.process.run":  "what was built beside the agent; ends with the context of the process",
}

func TestGoStatements(t *testing.T) {
	needed := map[string]bool{}
	for _, p := range program(t) {
		report(t, bareGoroutines(p))
		for _, name := range functionsWithGo(p) {
			needed[name] = true
		}
	}
	for name := range goStatements {
		if !needed[name] {
			t.Errorf("%s has no go statement any more: remove its row", name)
		}
	}
}

func bareGoroutines(p pkg) (faults []string) {
	for _, name := range functionsWithGo(p) {
		if _, listed := goStatements[name]; !listed {
			faults = append(faults, name+" has a go statement: use a wait group, or a component of pkg/kubelet")
		}
	}
	return faults
}

// functionsWithGo lists the functions of a package that have a go statement, function literals in them included.
func functionsWithGo(p pkg) (names []string) {
	for _, f := range p.files {
		for _, d := range f.Decls {
			if hasGoStatement(d) {
				names = append(names, p.name+"."+nameOf(d))
			}
		}
	}
	return names
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
		{inDriver, `import f "k8s.io/apiserver/pkg/util/feature"; var _ = f.DefaultFeatureGate`, readsGates, "as values"},
		{"cmd/kubelet/app", `import _ "k8s.io/apiserver/pkg/util/feature"`, readsGates, "as values"},
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
		{inPure, `import "sync"; func f() { var g sync.WaitGroup; g.Go(f) }`, impurities, "starts goroutines"},
		{inDriver, `func f() { go f() }`, bareGoroutines, "f has a go statement"},
		{inDriver, `func (m *Manager) f() { func() { go f() }() }`, bareGoroutines, "Manager.f has a go statement"},
		{inDriver, `var v = func() { go f() }`, bareGoroutines, "has a go statement"},
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
