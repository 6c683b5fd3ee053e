package agentlife

import (
	"log/slog"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	if v := os.Getenv("PLIMSOLL_TEST_LOGS"); v == "" {
		klog.SetLogger(logr.Discard())
	} else {
		klog.SetSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(-4)})))
	}
	os.Exit(m.Run())
}
