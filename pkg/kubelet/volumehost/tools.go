package volumehost

import (
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

// GetKubeClient is nil in standalone mode.
func (h *Host) GetKubeClient() clientset.Interface { return h.cfg.Client }

// GetMounter mounts and unmounts on the host.
func (h *Host) GetMounter() mount.Interface { return h.cfg.Mounts.Mounter }

// GetHostUtil looks at files and devices of the host.
func (h *Host) GetHostUtil() hostutil.HostUtils { return h.cfg.Mounts.HostUtil }

// GetSubpather makes subPath mounts that cannot be led astray by symbolic links.
func (h *Host) GetSubpather() subpath.Interface { return h.cfg.Mounts.Subpather }

// GetEventRecorder publishes events.
func (h *Host) GetEventRecorder() record.EventRecorder { return h.cfg.Recorder }
