// Package plugins is the conformance suite of eviction plugins. Each case runs plugins through the real parts, as the
// agent composes them, up to the requests to the pod workers and to an API server: stock's plugin manager, the host,
// the driver with the arbiter, the eviction manager with its policy, and the killer with a client. The pod workers, the
// API server behind its socket and the stats of the node are fakes.
//
//	rig          the parts of one case, and what a case awaits
//	node         the fake node: pods, and requests to stop them
//	apiserver    the fake API server: requests to evict pods, and disruption budgets
//	script       plugins with scripted answers
//	server       the same plugins behind sockets
//	cases        what holds for plugins in the agent and behind sockets alike
//	killers      the same, for what evicts pods through the API server
//	remote       what only plugins behind sockets can do
//	example      the program of examples/evictionplugin, as a process
package plugins

import (
	"flag"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// TestMain runs many cases at a time, since they mostly wait: stock's plugin manager looks for changes once a second.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
