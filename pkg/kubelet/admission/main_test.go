package admission_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	if os.Getenv("PLIMSOLL_TEST_LOGS") == "" {
		klog.SetLogger(logr.Discard())
	}
	os.Exit(m.Run())
}
