package pluginchaos

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Variables of the environment of a process of plugins.
const (
	roleVariable      = "PLIMSOLL_PLUGINS_ROLE"
	directoryVariable = "PLIMSOLL_PLUGINS_DIRECTORY"
)

// TestMain runs the tests, or plugins in a process that a test has started.
func TestMain(m *testing.M) {
	if os.Getenv("PLIMSOLL_TEST_LOGS") == "" {
		klog.SetLogger(logr.Discard())
	}
	if role := os.Getenv(roleVariable); role != "" {
		runPlugins(role, os.Getenv(directoryVariable))
		os.Exit(0)
	}
	os.Exit(m.Run())
}
