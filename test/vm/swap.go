package vm

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// UseKubelet makes the kubelet's unit start the stock kubelet or ours, as docs/operations.md describes it, and waits
// until that kubelet has reported the node Ready. Pods go on running.
func (n *Node) UseKubelet(ctx context.Context, stock bool) error {
	change, version := "install -D -m 0644 "+keptDropIn+" "+ownDropIn, build.OwnVersion
	if stock {
		change, version = "rm -f "+ownDropIn, build.KubernetesVersion
	}
	since, err := n.Now(ctx)
	if err != nil {
		return err
	}
	if _, err := n.Run(ctx, change+" && systemctl daemon-reload && systemctl restart kubelet"); err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, pollInterval, bootTimeout*n.factor, true,
		func(ctx context.Context) (bool, error) {
			last = n.runs(ctx, version, since)
			return last == nil, nil
		})
	if err != nil {
		return fmt.Errorf("kubelet %s does not report a Ready node: %w", version, last)
	}
	return nil
}

// runs is nil if a kubelet of that version has reported the node Ready after since.
func (n *Node) runs(ctx context.Context, version string, since time.Time) error {
	node, err := kit.Node(ctx, n.Client())
	if err != nil {
		return err
	}
	if got := node.Status.NodeInfo.KubeletVersion; got != version {
		return fmt.Errorf("the node's kubelet is %s", got)
	}
	return n.Ready(ctx, since)
}
