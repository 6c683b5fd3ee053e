// Package cluster runs a Kubernetes cluster of one node on this machine, without fakes: etcd, API server, scheduler,
// controller manager, containerd with runc and a CNI bridge, and a kubelet. They run as child processes that outlive
// the program that starts them.
//
// The control plane listens on loopback only. Everything that the cluster writes is in one directory. What its parts
// change elsewhere on the machine is recorded before they start and undone by [Clean], which needs only the files, also
// if the processes were killed.
//
// At most one cluster runs on a machine: the pods' cgroup, the bridge and the ports exist once.
package cluster
