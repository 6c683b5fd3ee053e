// Package zones makes the topology zones of a CustomNodeResource out of the facts about a machine and the pods on it.
// It is a pure function, whatever the order of the facts.
//
//   - The outermost zones are the sockets, with the NUMA nodes in them. A NUMA node whose socket is not known is an
//     outermost zone. As in Katalyst, sockets have neither resources nor allocations of their own.
//   - The capacity of a NUMA node is that of the hardware: logical CPUs, memory, huge pages. Allocatable is what the
//     managers can allocate. A resource that no manager allocates by NUMA node has a capacity only.
//   - A device belongs to each NUMA node that it is near, where it counts as one of its resource, and is a zone. Its
//     capacity is 1, and so is what is allocatable unless it is in use and not healthy. On a machine with one NUMA node
//     all devices belong to it; on others a device without a NUMA node is an outermost zone. The devices of a resource
//     of which there are more than MaxDevicesOfResource are no zones, only counted.
//   - An allocation is what all containers of a pod have of a zone: CPUs of their own, memory that the memory manager
//     has allocated, devices. CPUs and devices that two containers of a pod have count once. Memory on more than one
//     NUMA node is divided among them in proportion to what the memory manager can allocate there.
//   - With Options.OnlyNUMABound, only those containers count whose own CPUs and memory are of one NUMA node.
package zones
