// Package cluster runs a Kubernetes cluster of one node on this machine, with
// nothing faked: etcd, API server, scheduler, controller manager, containerd
// with runc and a CNI bridge, and a kubelet. They run as child processes that
// outlive the program that starts them.
//
// The control plane listens on loopback only. Everything the cluster writes
// lies in one folder; what its parts do elsewhere on the machine is recorded
// before they start and undone by [Clean], which works from the files alone,
// whatever has happened to the processes.
//
// There is one cluster on a machine at a time: the pods' control group, the
// bridge and the ports exist once.
package cluster
