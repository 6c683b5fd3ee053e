package server

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CheckpointContainer writes the state of a running container to an archive in the checkpoint directory. It fills in
// where request asks for it: the caller reads the archive's path from request.Location afterwards.
func (h *Host) CheckpointContainer(
	ctx context.Context, uid types.UID, fullName, name string, request *runtimeapi.CheckpointContainerRequest,
) error {
	container, err := h.runningContainer(ctx, fullName, uid, name)
	if err != nil {
		return err
	}
	if container == nil {
		return fmt.Errorf("container %v not found", name)
	}
	archive := fmt.Sprintf("checkpoint-%s-%s-%s.tar", fullName, name, h.cfg.Now().Format(time.RFC3339))
	request.Location = filepath.Join(h.cfg.CheckpointDir, archive)
	request.ContainerId = container.ID.ID
	return h.cfg.Runtime.CheckpointContainer(ctx, request)
}
