package nodestatus

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// NewLister returns a lister of the Node of this name, and no other, a function that reports whether it has been
// synced, and the informers that fill it, which the caller starts. Without a client the lister is empty and counts as
// synced, and there are no informers.
func NewLister(
	ctx context.Context, client clientset.Interface, name types.NodeName,
) (corelisters.NodeLister, cache.InformerSynced, []informers.SharedInformerFactory) {
	logger := klog.FromContext(ctx)
	if client == nil {
		logger.Info("Kubelet is running in standalone mode, will skip API server sync")
		empty := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		return corelisters.NewNodeLister(empty), func() bool { return true }, nil
	}
	onlyOwn := fields.OneTermEqualSelector(metav1.ObjectNameField, string(name)).String()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = onlyOwn }))
	nodes := factory.Core().V1().Nodes()
	lister, synced := nodes.Lister(), nodes.Informer().HasSynced
	logger.Info("Attempting to sync node with API server")
	return lister, synced, []informers.SharedInformerFactory{factory}
}
