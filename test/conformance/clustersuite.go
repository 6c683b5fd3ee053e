package conformance

import (
	"context"
	"os"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// clusterSuite is the upstream cluster suite. It needs a running cluster whose only node has the kubelet under test.
type clusterSuite struct{ Suite }

func (clusterSuite) part() build.Part { return build.ClusterSuite() }

func (s clusterSuite) call(_ context.Context, c *cluster.Cluster) (call, error) {
	layout := c.Layout()
	return call{
		args: []string{
			// No cloud provider: the suite does not access the machines.
			"--provider=skeleton", "--kubeconfig=" + layout.AdminConfig(), "--kubectl-path=" + layout.Program("kubectl"),
			"--report-dir=" + s.file("artifacts"),
		},
		env: []string{"PATH=" + layout.Bin + ":" + os.Getenv("PATH")},
	}, nil
}
