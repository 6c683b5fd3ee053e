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

// errNoInitialNode is the answer of a View whose Updater has not been made.
var errNoInitialNode = errors.New("the node is not known to the API server, and this agent cannot describe it yet")

// ViewConfig is what a View is made of.
type ViewConfig struct {
	Name types.NodeName
	// Lister is not used in standalone mode.
	Lister NodeLister
	// Client is nil in standalone mode.
	Client Client
}

// View answers what the agent knows of its own node. It is safe for concurrent use. Nodes it returns are shared: copy
// before modifying.
type View struct {
	cfg ViewConfig

	mu      sync.Mutex
	initial func(context.Context) (*v1.Node, error)
	cached  *v1.Node
}

// NewView returns a view of the node. New completes it.
func NewView(cfg ViewConfig) *View { return &View{cfg: cfg} }

// Name is the name of the Node object.
func (v *View) Name() types.NodeName { return v.cfg.Name }

// Ref names the node as the object of events. Like stock's it carries no UID.
func (v *View) Ref() *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: string(v.cfg.Name)}
}

func (v *View) standalone() bool { return v.cfg.Client == nil }

// Lookup returns the Node as the API server has it, with the delay of the cache; in standalone mode what it would be
// created as. The error is the lister's, IsNotFound before the node is registered or the cache is filled.
func (v *View) Lookup(ctx context.Context) (*v1.Node, error) {
	if v.standalone() {
		return v.describe(ctx)
	}
	return v.cfg.Lister.Get(string(v.cfg.Name))
}

// Node returns the Node as Lookup does, or else what it would be created as. It fails only if that cannot be described.
func (v *View) Node(ctx context.Context) (*v1.Node, error) {
	if node, err := v.Lookup(ctx); err == nil {
		return node, nil
	}
	return v.describe(ctx)
}

// CachedNode returns the newest Node this agent has seen. With useCache false it asks the API server first. It is
// meant for admission, where a rejection by a stale node is checked again with a fresh one.
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
		return v.rememberNewer(ctx, listed), nil
	case seen != nil:
		klog.FromContext(ctx).Error(err, "Failed to list node; using cached node")
		return seen, nil
	default:
		return v.describe(ctx)
	}
}

func (v *View) refresh(ctx context.Context) (*v1.Node, error) {
	if v.standalone() {
		return v.describe(ctx)
	}
	node, err := v.cfg.Client.CoreV1().Nodes().Get(ctx, string(v.cfg.Name), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading node %q: %w", v.cfg.Name, err)
	}
	return v.remember(node), nil
}

func (v *View) remember(node *v1.Node) *v1.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cached = node
	return node
}

func (v *View) rememberNewer(ctx context.Context, listed *v1.Node) *v1.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cached = newerNode(ctx, listed, v.cached)
	return v.cached
}

// newerNode is the one with the higher resource version, and listed if they cannot be compared.
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

// LastObservedAddresses are the addresses in the Node's status, nil if the node is not known. They are what the serving
// certificate is requested for.
func (v *View) LastObservedAddresses(ctx context.Context) []v1.NodeAddress {
	node, err := v.Lookup(ctx)
	if err != nil || node == nil {
		klog.FromContext(ctx).V(4).Info("Failed to obtain node from local cache", "node", klog.KRef("", string(v.cfg.Name)),
			"err", err)
		return nil
	}
	return node.Status.Addresses
}

// HostIPs are the node's internal addresses, else its external ones, at most one per family.
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

func (v *View) describe(ctx context.Context) (*v1.Node, error) {
	v.mu.Lock()
	initial := v.initial
	v.mu.Unlock()
	if initial == nil {
		return nil, errNoInitialNode
	}
	return initial(ctx)
}
