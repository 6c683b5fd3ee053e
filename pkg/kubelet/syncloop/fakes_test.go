package syncloop

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// forgetful is an allocation manager for tests in which nothing is resized; whatever else is called panics.
type forgetful struct{ allocation.Manager }

func (forgetful) RemovePod(types.UID) {}
