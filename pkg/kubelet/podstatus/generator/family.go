package generator

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	utilnet "k8s.io/utils/net"
)

// warnOfFamilyChange sends an event when the IP family of the node's first address changes: with an external cloud
// provider the kubelet first detects an address itself, and the provider may choose another one. Stock has the same
// event and never sends it, because it reads the previous address where it is not set yet.
func (g *Generator) warnOfFamilyChange(logger klog.Logger, pod *v1.Pod, before, now string) {
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
