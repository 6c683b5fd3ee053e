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
	// with disk_, so that these tests follow each other and share one cluster.
	smallDisks
	// noCluster is the state after a cluster could not be started.
	noCluster
)

// currentKind is that of node. replacing guards both: all parallel tests ask for the standard cluster at the same time.
var (
	replacing   sync.Mutex
	currentKind = standard
)

// useCluster replaces the shared cluster if it is of another kind. Parallel tests may only use the standard one.
func useCluster(t testing.TB, want clusterKind) {
	t.Helper()
	replacing.Lock()
	defer replacing.Unlock()
	if currentKind == want {
		return
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
		t.Fatal(err)
	}
	node, currentKind = next, want
}

// stopCluster ends the shared cluster, if one runs. It fails if the cluster leaves a disk behind.
func stopCluster(ctx context.Context) error {
	return errors.Join(node.Stop(ctx), noDisks(clusterConfig.Layout))
}
