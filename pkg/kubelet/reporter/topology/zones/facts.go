package zones

// Facts are the machine, what its managers can allocate, and what they have allocated to pods. They must not be
// modified once they are in use.
type Facts struct {
	// NUMANodes have unique IDs. Of two with the same one, the first counts.
	NUMANodes []NUMANode
	// AllocatableCPUs are those that the CPU manager can allocate. There are none if it has no policy that allocates CPUs.
	AllocatableCPUs []int
	// AllocatableMemory is what the memory manager can allocate. There is none if its policy allocates no memory.
	AllocatableMemory []Memory
	// AllocatableDevices are the healthy devices of all device plugins.
	AllocatableDevices []Device
	Pods               []Pod
}

// NUMANode is a NUMA node of the machine.
type NUMANode struct {
	ID int
	// Socket is the ID of the socket that its CPUs are of. It is negative if that is not known: a node without CPUs is of
	// no socket, and some virtual machines have no IDs of sockets.
	Socket int
	// CPUs are the IDs of its logical CPUs.
	CPUs []int
	// Memory is in bytes; 0 means that it is not known, or that there is none.
	Memory    uint64
	HugePages []HugePages
}

// HugePages are the pages of one size of a NUMA node.
type HugePages struct {
	// Size is in bytes.
	Size  uint64
	Count uint64
}

// Memory is memory of one kind on one or more NUMA nodes.
type Memory struct {
	// Resource is memory, or hugepages-<size>.
	Resource string
	Bytes    uint64
	// Nodes are IDs of NUMA nodes. How the bytes are divided among them is not known.
	Nodes []int
}

// Device is a device of a device plugin. Resource and ID together are unique.
type Device struct {
	Resource, ID string
	// Nodes are the IDs of the NUMA nodes that it is near. There are none if its plugin reports none.
	Nodes []int
}

// Pod is a pod that uses resources of the node.
type Pod struct {
	// Consumer is namespace/name/UID.
	Consumer   string
	Containers []Container
}

// Container is what the managers have allocated to a container, init containers included. An init container and a later
// one of the same pod may have the same CPUs and devices. They never have the same memory: the memory manager takes the
// memory of an init container off it when it allocates it again.
type Container struct {
	// CPUs are those that the container has for itself.
	CPUs    []int
	Memory  []Memory
	Devices []Device
}
