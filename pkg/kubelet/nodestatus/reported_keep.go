package nodestatus

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// devicePluginCapacity is GetDevicePluginResourceCapacity of the container manager, and keeps the names of the
// resources: they are not written for reporter plugins.
func (u *Updater) devicePluginCapacity() (capacity, allocatable v1.ResourceList, removed []string) {
	capacity, allocatable, removed = u.cfg.Resources.GetDevicePluginResourceCapacity()
	names := map[string]bool{}
	for _, list := range []v1.ResourceList{capacity, allocatable} {
		for name := range list {
			names[string(name)] = true
		}
	}
	u.fields.devices.Store(&names)
	return capacity, allocatable, removed
}

// devices returns the resources of device plugins; none before a status was computed.
func (u *Updater) devices() map[string]bool {
	if names := u.fields.devices.Load(); names != nil {
		return *names
	}
	return nil
}

// isReported returns a function that reports whether a resource was written to a Node for reporter plugins. What the
// status is computed from does not have these resources, so that they are kept as they are.
func (u *Updater) isReported(ctx context.Context, node *v1.Node) func(v1.ResourceName) bool {
	if err := u.loadReportedRecord(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read which extended resources are those of reporter plugins")
	}
	names, devices := map[v1.ResourceName]bool{}, u.devices()
	for _, f := range u.reportedRecord().Of(node.UID) {
		if f.IsResource() && !devices[f.Key] {
			names[v1.ResourceName(f.Key)] = true
		}
	}
	return func(name v1.ResourceName) bool { return names[name] }
}

// keepReported sets the resources of a Node that are those of reporter plugins to what they are on the base. Stock's
// setters make allocatable equal to capacity, and reset extended resources to zero when a Node was created again.
func keepReported(base, node *v1.Node, isReported func(v1.ResourceName) bool) {
	keep := func(from, into v1.ResourceList) {
		for name := range into {
			if _, there := from[name]; !there && isReported(name) {
				delete(into, name)
			}
		}
		for name, quantity := range from {
			if isReported(name) {
				into[name] = quantity.DeepCopy()
			}
		}
	}
	keep(base.Status.Capacity, node.Status.Capacity)
	keep(base.Status.Allocatable, node.Status.Allocatable)
}
