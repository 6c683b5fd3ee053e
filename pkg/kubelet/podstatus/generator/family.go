package generator

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	utilnet "k8s.io/utils/net"
)

// warnOfFamily tells users when the node's first address has become one of the other IP family: with an external cloud
// provider the kubelet detects an address of its own first, and the provider may choose another. Stock has the same
// event, and looks for the earlier address where it has not been filled in yet, so that it never writes it.
func (g *Generator) warnOfFamily(logger klog.Logger, pod *v1.Pod, before, now string) {
	if g.cfg.Recorder == nil || before == "" || now == "" {
		return
	}
	detected, selected := utilnet.IPFamilyOfString(before), utilnet.IPFamilyOfString(now)
	if detected == selected {
		return
	}
	g.cfg.Recorder.WithLogger(logger).Eventf(pod, v1.EventTypeWarning, "HostIPsIPFamilyMismatch",
		"Kubelet detected an IPv%s node IP (%s), but the cloud provider selected an IPv%s node IP (%s); pass an explicit "+
			"`--node-ip` to kubelet to fix this.",
		detected, before, selected, now)
}
