package containerspec

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

// UserNamespaceHost implements the interface that the stock user namespace manager (userns.MakeUserNsManager) needs.
type UserNamespaceHost struct {
	Layout paths.Layout
	// RuntimeHandlers returns what the runtime reported last.
	RuntimeHandlers func() []kubecontainer.RuntimeHandler
	// MaxPods is the number of ID ranges that must be available.
	MaxPods int
	// Enabled is the gate UserNamespacesSupport. Without it /etc/subuid and /etc/subgid are not read.
	Enabled bool
}

// GetPodDir returns the directory in which the pod's ID range is stored.
func (u UserNamespaceHost) GetPodDir(uid types.UID) string { return u.Layout.Pod(uid) }

// GetMaxPods returns the most pods that the node runs.
func (u UserNamespaceHost) GetMaxPods() int { return u.MaxPods }

// ListPodsFromDisk returns the pods that have a directory; their ID ranges may be in use. If the directory of all pods
// does not exist yet, os.IsNotExist is true for the error.
func (u UserNamespaceHost) ListPodsFromDisk() ([]types.UID, error) {
	entries, err := os.ReadDir(u.Layout.Pods())
	if err != nil {
		// The manager calls os.IsNotExist, which does not unwrap errors.
		return nil, err
	}
	uids := make([]types.UID, 0, len(entries))
	for _, entry := range entries {
		if entry.IsDir() {
			uids = append(uids, types.UID(entry.Name()))
		}
	}
	return uids, nil
}

// HandlerSupportsUserNamespaces returns whether pods of the runtime handler can have user namespaces. Runtimes that do
// not list their handlers do not support them.
func (u UserNamespaceHost) HandlerSupportsUserNamespaces(name string) (bool, error) {
	handlers := u.RuntimeHandlers()
	for _, handler := range handlers {
		if handler.Name == name {
			return handler.SupportsUserNamespaces, nil
		}
	}
	if len(handlers) == 0 {
		return false, nil
	}
	return false, fmt.Errorf("the handler %q is not known", name)
}

// GetKubeletMappings returns first ID and number of the IDs for ranges of pods: those of user "kubelet" in /etc/subuid
// and /etc/subgid, which must be the same, else all above the first range.
func (u UserNamespaceHost) GetKubeletMappings(logger klog.Logger, idsPerPod uint32) (uint32, uint32, error) {
	first, length, err := subordinateIDs(logger, hostIDTools(u.Enabled))
	if errors.Is(err, errNoSubordinateIDs) {
		return idsPerPod, uint32(1<<32 - uint64(idsPerPod)), nil
	}
	return first, length, err
}
