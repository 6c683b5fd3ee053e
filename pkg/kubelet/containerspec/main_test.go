package containerspec

import (
	"io"
	"os"
	"testing"

	"k8s.io/klog/v2"
)

// TestMain turns logs off: the comparisons make both kubelets log thousands of errors on purpose.
func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}
