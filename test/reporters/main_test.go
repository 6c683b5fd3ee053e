// Package reporters is the conformance suite of reporter plugins. Each case runs plugins through the real parts, as the
// agent composes them, up to the object that an API server has: stock's plugin manager, the host, the driver, the
// checkpoint, the merger, the publisher, and what the Node is written from. Sockets are real. The API server is a fake
// with the managed fields of the real one. The clock of the agent is a fake one: a second passes whenever a case looks
// whether what it awaits has happened.
//
//	rig          the parts of one case, and what a case awaits
//	apiserver    the fake API server: one CustomNodeResource
//	script       plugins with scripted answers
//	server       the same plugins behind sockets
//	cases        runs what holds for plugins in the agent and behind sockets alike
//	answers      which answer is published: polls, streams, limits, the end of a plugin, restarts
//	fields       what of an answer is published: refusals, merges, settings
//	remote       what only plugins behind sockets can do
//	load         many messages, and hostile plugins
//	child        their plugins as processes, when what the agent costs is measured
//	cost         what the agent costs
//	change       how long a change of one value takes, in virtual time
//	agentplugins the plugins in the agent, and the program of examples/reporterplugin as a process
package reporters

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// TestMain runs many cases at a time, since they mostly wait: stock's plugin manager looks for changes once a second.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	if text := os.Getenv(childVariable); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
