// Package vm runs a virtual machine as a real Kubernetes node: Debian with its kernel, systemd as process 1, the
// unified hierarchy of control groups, containerd with the systemd driver, and the kubelet as a unit that is laid out
// as on a node of kubeadm, with our drop-in.
//
// The image of the machine is built from packages of the distribution and from the parts that package build builds, and
// kept by its content (Image). What differs from run to run, such as certificates, configuration and both kubelets, is
// on a second disk (writeNodeDisk). The machine never writes to the image: each run begins with the same disk.
//
// The control plane runs on this machine (cluster.StartControlPlane), in a network namespace that it shares only with
// the virtual machine (network). So several virtual machines and a cluster of make run do not disturb each other.
// Programs of this machine reach the namespace by Network.Dial or by nsenter.
//
// RunSuite runs the node tests (test/e2e_node) in a machine. They start containerd and the kubelet there themselves,
// and have this machine start and stop the control plane (cluster.Guest).
package vm
