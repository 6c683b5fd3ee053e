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

// StartLister starts watching the Node of this name, and no other, until ctx ends. The second result says whether the
// watch has delivered. Without a client the lister is empty and counts as delivered.
func StartLister(
	ctx context.Context, client clientset.Interface, name types.NodeName,
) (corelisters.NodeLister, cache.InformerSynced) {
	logger := klog.FromContext(ctx)
	if client == nil {
		logger.Info("Kubelet is running in standalone mode, will skip API server sync")
		empty := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		return corelisters.NewNodeLister(empty), func() bool { return true }
	}
	onlyOwn := fields.OneTermEqualSelector(metav1.ObjectNameField, string(name)).String()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = onlyOwn }))
	nodes := factory.Core().V1().Nodes()
	lister, synced := nodes.Lister(), nodes.Informer().HasSynced
	factory.Start(ctx.Done())
	logger.Info("Attempting to sync node with API server")
	return lister, synced
}
