package snapshot

// Device is a block device as far as pressure is concerned.
type Device uint8

const (
	// NodeDevice carries the kubelet's root directory: volumes, logs, and whatever else is not on the ImageDevice.
	NodeDevice Device = iota
	// ImageDevice carries the runtime's images, when they are on a device of their own.
	ImageDevice

	// NumDevices is the length of an array that is indexed by Device.
	NumDevices
)

// String is for logs.
func (d Device) String() string {
	if d == ImageDevice {
		return "image device"
	}
	return "node device"
}

// Layout says how the file systems are spread over devices (KEP-4191 describes the split one).
type Layout struct {
	// Known is false until the layout was detected; then nothing is assumed about file systems.
	Known bool
	// DedicatedImageFs: images are not on the node device.
	DedicatedImageFs bool
	// SplitContainerFs: writable layers are not where images are.
	SplitContainerFs bool
}

// Measure says which parts of a pod's disk usage lie on a device.
type Measure struct {
	// WritableLayers of the containers.
	WritableLayers bool
	// Logs of the containers.
	Logs bool
	// Volumes that live on the node: emptyDir, configMap, gitRepo, hostPath.
	Volumes bool
	// Images that nobody else uses.
	Images bool
}

// Any reports whether anything is measured at all.
func (m Measure) Any() bool { return m.WritableLayers || m.Logs || m.Volumes || m.Images }

// DeviceOf is the device that a file system signal speaks of. It must not be asked for other signals.
func (l Layout) DeviceOf(s Signal) Device {
	if !l.DedicatedImageFs {
		return NodeDevice
	}
	switch s {
	case ImageFsAvailable, ImageFsInodesFree:
		return ImageDevice
	case ContainerFsAvailable, ContainerFsInodesFree:
		if !l.SplitContainerFs {
			return ImageDevice
		}
	default: // whatever is not about images lies on the node's device
	}
	return NodeDevice
}

// MeasureOf says what of a pod's usage is on the device. Images belong to no pod and are part of it only where there is
// nothing else: on the image device of a split file system, where those count that would go with the pod.
func (l Layout) MeasureOf(d Device) Measure {
	switch {
	case !l.DedicatedImageFs:
		return Measure{WritableLayers: true, Logs: true, Volumes: true}
	case d == ImageDevice:
		return Measure{WritableLayers: !l.SplitContainerFs, Images: l.SplitContainerFs}
	}
	return Measure{WritableLayers: l.SplitContainerFs, Logs: true, Volumes: true}
}
