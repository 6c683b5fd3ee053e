package volumehost

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The interfaces of the volume library have no context. The methods here do not wait for the API server. In standalone
// mode and before registration Node queries the runtime, whose client has timeouts.

// GetNodeName returns the name of the Node object.
func (h *Host) GetNodeName() types.NodeName { return h.cfg.Nodes.Name() }

// GetNodeAllocatable returns the allocatable resources of the node. They are the size of a tmpfs without a limit, and
// the limits in the downward API of containers without limits.
func (h *Host) GetNodeAllocatable() (v1.ResourceList, error) {
	node, err := h.cfg.Nodes.Node(context.Background())
	if err != nil {
		return nil, fmt.Errorf("error retrieving node: %w", err)
	}
	return node.Status.Allocatable, nil
}

// GetNodeLabels returns the labels of the Node object, for the topology of CSI drivers. They are shared and must not be
// modified. It fails if the Node has not been received from the API server.
func (h *Host) GetNodeLabels() (map[string]string, error) {
	node, err := h.lookup()
	if err != nil {
		return nil, err
	}
	return node.Labels, nil
}

// GetAttachedVolumesFromNodeStatus returns the device paths of the volumes that the attach/detach controller has
// attached. It fails if the Node has not been received from the API server.
func (h *Host) GetAttachedVolumesFromNodeStatus() (map[v1.UniqueVolumeName]string, error) {
	node, err := h.lookup()
	if err != nil {
		return nil, err
	}
	devices := make(map[v1.UniqueVolumeName]string, len(node.Status.VolumesAttached))
	for _, attached := range node.Status.VolumesAttached {
		devices[attached.Name] = attached.DevicePath
	}
	return devices, nil
}

func (h *Host) lookup() (*v1.Node, error) {
	node, err := h.cfg.Nodes.Lookup(context.Background())
	if err != nil {
		return nil, fmt.Errorf("error retrieving node: %w", err)
	}
	return node, nil
}
