package snapshot

// Device is a block device that pressure is about.
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
	// Known is false until the layout is detected; nothing is decided about file systems before.
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
	// Images that no other pod uses.
	Images bool
}

// Any reports whether anything is measured at all.
func (m Measure) Any() bool { return m.WritableLayers || m.Logs || m.Volumes || m.Images }

// DeviceOf returns the device of a file system signal. It must not be called for other signals.
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
	default: // signals that are not about images are those of the node device
	}
	return NodeDevice
}

// MeasureOf returns which parts of a pod's usage are on the device. Images belong to no pod. They count only where
// nothing else of pods is, on the image device of a split file system: those that no other pod uses.
func (l Layout) MeasureOf(d Device) Measure {
	switch {
	case !l.DedicatedImageFs:
		return Measure{WritableLayers: true, Logs: true, Volumes: true}
	case d == ImageDevice:
		return Measure{WritableLayers: !l.SplitContainerFs, Images: l.SplitContainerFs}
	}
	return Measure{WritableLayers: l.SplitContainerFs, Logs: true, Volumes: true}
}
