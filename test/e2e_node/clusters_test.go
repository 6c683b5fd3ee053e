//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/plimsoll-project/plimsoll/test/cluster"
)

// clusterKind says how the shared cluster is configured.
type clusterKind int

const (
	standard clusterKind = iota
	// smallDisks has file systems of its own for images and for the kubelet. The names of the files of its tests begin
	// with 0_disk_: tests run in the order of their files, so that these are the first, share one cluster, and all
	// others share one after it.
	smallDisks
	// noCluster is the state before a cluster is started, and after one could not be started.
	noCluster
)

// currentKind is that of node, and failed has the kinds that could not be started, and why. replacing guards all
// three: all parallel tests ask for the standard cluster at the same time.
var (
	replacing   sync.Mutex
	currentKind = noCluster
	failed      = map[clusterKind]error{}
)

// useCluster starts the shared cluster, or replaces it if it is of another kind. Parallel tests may only use the
// standard one.
func useCluster(t testing.TB, want clusterKind) {
	t.Helper()
	replacing.Lock()
	defer replacing.Unlock()
	if currentKind == want {
		return
	}
	if err := failed[want]; err != nil {
		t.Fatalf("an earlier test could not start this cluster: %v", err)
	}
	currentKind = noCluster
	if err := stopCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := clusterConfig
	if want == smallDisks {
		config, emptyDisks = withSmallDisks(config), [2]int64{}
	}
	next, err := cluster.Start(t.Context(), config)
	if err != nil {
		failed[want] = err
		t.Fatal(err)
	}
	node, currentKind = next, want
}

// useFirstKubelet has the kubelet of the shared cluster run with the configuration that the cluster was started with,
// whatever earlier tests have left.
func useFirstKubelet(t testing.TB) {
	t.Helper()
	replacing.Lock()
	defer replacing.Unlock()
	if err := node.EnsureKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// stopCluster ends the shared cluster, if one runs. It fails if the cluster leaves a disk behind.
func stopCluster(ctx context.Context) error {
	if node == nil {
		return nil
	}
	return errors.Join(node.Stop(ctx), noDisks(clusterConfig.Layout))
}
