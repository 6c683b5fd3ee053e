package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
	utilnode "k8s.io/kubernetes/pkg/util/node"
)

// errNoInitialNode is the error of a View before the call of New.
var errNoInitialNode = errors.New("the Node is not in the API server, and the agent has not computed it yet")

// ViewConfig is the configuration of a View.
type ViewConfig struct {
	Name types.NodeName
	// Lister is not used in standalone mode.
	Lister NodeLister
	// Client is nil in standalone mode.
	Client Client
}

// View returns the Node of this agent. It is safe for concurrent use. The returned objects are shared and must not be
// modified.
type View struct {
	cfg ViewConfig

	mu sync.Mutex
	// initial computes the Node that the agent would create; nil before the call of New.
	initial func(context.Context) (*v1.Node, error)
	// cached is the newest Node that CachedNode has returned.
	cached *v1.Node
}

// NewView returns a view of the node. New completes it.
func NewView(cfg ViewConfig) *View { return &View{cfg: cfg} }

// Name is the name of the Node object.
func (v *View) Name() types.NodeName { return v.cfg.Name }

// Ref returns the reference to the Node for events. As in stock it has no UID.
func (v *View) Ref() *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: string(v.cfg.Name)}
}

func (v *View) standalone() bool { return v.cfg.Client == nil }

// Lookup returns the Node from the lister; in standalone mode the Node that the agent would create. The error is that
// of the lister: IsNotFound before the Node is registered or the cache is filled.
func (v *View) Lookup(ctx context.Context) (*v1.Node, error) {
	if v.standalone() {
		return v.initialNode(ctx)
	}
	return v.cfg.Lister.Get(string(v.cfg.Name))
}

// Node returns the Node as Lookup does, or if that fails the Node that the agent would create. It fails only if the
// agent cannot compute that.
func (v *View) Node(ctx context.Context) (*v1.Node, error) {
	if node, err := v.Lookup(ctx); err == nil {
		return node, nil
	}
	return v.initialNode(ctx)
}

// CachedNode returns the newest Node that the agent has read. With useCache false it reads the Node from the API server
// first. It is for admission, which checks a rejection by a stale Node again with a current one.
func (v *View) CachedNode(ctx context.Context, useCache bool) (*v1.Node, error) {
	if !useCache {
		return v.refresh(ctx)
	}
	listed, err := v.Lookup(ctx)
	v.mu.Lock()
	seen := v.cached
	v.mu.Unlock()
	switch {
	case err == nil:
		return v.cacheNewer(ctx, listed), nil
	case seen != nil:
		klog.FromContext(ctx).Error(err, "Failed to list node; using cached node")
		return seen, nil
	default:
		return v.initialNode(ctx)
	}
}

func (v *View) refresh(ctx context.Context) (*v1.Node, error) {
	if v.standalone() {
		return v.initialNode(ctx)
	}
	node, err := v.cfg.Client.CoreV1().Nodes().Get(ctx, string(v.cfg.Name), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading node %q: %w", v.cfg.Name, err)
	}
	return v.cache(node), nil
}

func (v *View) cache(node *v1.Node) *v1.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cached = node
	return node
}

func (v *View) cacheNewer(ctx context.Context, listed *v1.Node) *v1.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cached = newerNode(ctx, listed, v.cached)
	return v.cached
}

// newerNode returns the Node with the higher resource version; listed if the versions cannot be compared.
func newerNode(ctx context.Context, listed, seen *v1.Node) *v1.Node {
	if seen == nil || listed == seen {
		return listed
	}
	order, err := resourceversion.CompareResourceVersion(seen.ResourceVersion, listed.ResourceVersion)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Resource versions of the node cannot be compared; using the listed node", "err", err)
		return listed
	}
	if order > 0 {
		return seen
	}
	return listed
}

// LastObservedAddresses returns the addresses in the Node's status, nil if there is no Node. The serving certificate is
// requested for them.
func (v *View) LastObservedAddresses(ctx context.Context) []v1.NodeAddress {
	node, err := v.Lookup(ctx)
	if err != nil || node == nil {
		klog.FromContext(ctx).V(4).Info("Failed to obtain node from local cache", "node", klog.KRef("", string(v.cfg.Name)),
			"err", err)
		return nil
	}
	return node.Status.Addresses
}

// HostIPs returns the node's internal addresses, or if there are none its external ones; at most one per family.
func (v *View) HostIPs(ctx context.Context) ([]net.IP, error) {
	node, err := v.Node(ctx)
	if err != nil {
		return nil, err
	}
	ips, err := utilnode.GetNodeHostIPs(node)
	if err != nil {
		return nil, fmt.Errorf("host IPs: %w", err)
	}
	return ips, nil
}

func (v *View) complete(initial func(context.Context) (*v1.Node, error)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.initial = initial
}

func (v *View) initialNode(ctx context.Context) (*v1.Node, error) {
	v.mu.Lock()
	initial := v.initial
	v.mu.Unlock()
	if initial == nil {
		return nil, errNoInitialNode
	}
	return initial(ctx)
}
