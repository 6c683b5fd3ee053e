//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// node is the cluster that all tests of this package share. useCluster starts and replaces it; it is nil before.
var node *cluster.Cluster

// clusterConfig is the configuration of the standard cluster.
var clusterConfig cluster.Config

// processes is held by a goroutine, other than the test's own, that kills and starts processes of the node. An
// interrupted run holds it for ever while it cleans up.
var processes sync.Mutex

// builder builds parts that only some tests need.
var builder build.Builder

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "e2e_node: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cluster.CheckMachine(); err != nil {
		return 0, fmt.Errorf("this machine cannot run the real parts, and these tests are never skipped:\n%w", err)
	}
	config, err := prepare(ctx)
	if err != nil {
		return 0, err
	}
	clusterConfig = config
	defer func() { err = errors.Join(err, stopCluster(context.Background())) }()
	// A signal ends the tests and then removes the cluster.
	completed := context.AfterFunc(ctx, func() {
		fmt.Fprintln(os.Stderr, "e2e_node: interrupted, cleaning up")
		processes.Lock()
		if err := stopCluster(context.Background()); err != nil {
			fmt.Fprintf(os.Stderr, "e2e_node: %v\n", err)
		}
		os.Exit(1)
	})
	if err := selectTests(); err != nil {
		return 0, err
	}
	code = m.Run()
	completed()
	return code, nil
}

func prepare(ctx context.Context) (cluster.Config, error) {
	root, err := cluster.FindRoot(".")
	if err != nil {
		return cluster.Config{}, err
	}
	layout := cluster.NewLayout(root, cluster.TestName)
	guest, err := cluster.ReadGuest()
	if err != nil {
		return cluster.Config{}, err
	}
	builder = build.Builder{Root: root, Out: layout.Bin, Built: guest != nil, Log: os.Stderr}
	config := cluster.Config{
		Layout: layout, Kubelet: os.Getenv("PLIMSOLL_KUBELET"), CgroupRoot: os.Getenv("PLIMSOLL_CGROUP_ROOT"),
		Tune: shortPeriods, Guest: guest, Log: os.Stderr,
	}
	if !builder.Built {
		err = builder.All(ctx, layout.Images, config.Kubelet == "")
	}
	if config.Kubelet == "" {
		config.Kubelet = layout.Program("kubelet")
	}
	return config, err
}

// shortPeriods shortens periods of the kubelet for which tests would otherwise wait. A test whose result depends on one
// of them sets it itself.
func shortPeriods(config *kubeletv1beta1.KubeletConfiguration) {
	// A pressure condition ends this long after its threshold was last met.
	config.EvictionPressureTransitionPeriod = metav1.Duration{Duration: 5 * time.Second}
	// The Node's status shows devices and images this long after they have changed. A status that has not changed is
	// reported as often as by default.
	config.NodeStatusUpdateFrequency = metav1.Duration{Duration: 3 * time.Second}
	config.NodeStatusReportFrequency = metav1.Duration{Duration: 5 * time.Minute}
	// The files of a volume follow a changed ConfigMap when the pod is synchronized next.
	config.SyncFrequency = metav1.Duration{Duration: 10 * time.Second}
}

// inSoak returns long when PLIMSOLL_SOAK is set, as make soak does, and otherwise short, which is enough for what the
// test claims.
func inSoak(long, short time.Duration) time.Duration {
	if os.Getenv("PLIMSOLL_SOAK") != "" {
		return long
	}
	return short
}

// transitionPeriod returns a function that sets how long a pressure condition stays after its threshold was last met.
func transitionPeriod(period time.Duration) func(*kubeletv1beta1.KubeletConfiguration) {
	return func(config *kubeletv1beta1.KubeletConfiguration) {
		config.EvictionPressureTransitionPeriod = metav1.Duration{Duration: period}
	}
}
