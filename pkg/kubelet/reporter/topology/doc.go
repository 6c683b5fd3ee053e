// Package topology is the reporter plugin kubelet-reporter-plugin, under the name of Katalyst's. It reports two fields
// of the status of the CustomNodeResource: topologyZone, from what the managers of CPUs, memory and devices in this
// process have allocated (package zones), and topologyPolicy, the policy and scope of the topology manager.
//
// It reads the managers once a second, and at once when Changed is called. What it has read is compared with what it
// read before, and only after a change are the zones computed and sent.
package topology
