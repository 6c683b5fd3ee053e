package cluster

import (
	"fmt"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// Names of the processes of a cluster.
const (
	processEtcd       = "etcd"
	processAPIServer  = "kube-apiserver"
	processScheduler  = "kube-scheduler"
	processController = "kube-controller-manager"
	processContainerd = "containerd"
	processKubelet    = "kubelet"
	processRegistry   = "registry"
)

// etcd keeps the cluster's objects. It need not survive a power failure.
func (l Layout) etcd() host.Command {
	client := fmt.Sprintf("http://%s:%d", loopback, portEtcd)
	peer := fmt.Sprintf("http://%s:%d", loopback, portEtcdPeer)
	return host.Command{
		Name: processEtcd,
		Path: l.Program("etcd"),
		Args: []string{
			"--data-dir=" + l.run("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
			"--unsafe-no-fsync",
		},
	}
}

// apiServer listens on address, which the certificates name.
func (l Layout) apiServer(address string) host.Command {
	return host.Command{
		Name: processAPIServer,
		Path: l.Program("kube-apiserver"),
		Args: []string{
			fmt.Sprintf("--etcd-servers=http://%s:%d", loopback, portEtcd),
			"--bind-address=" + address,
			"--advertise-address=" + address,
			fmt.Sprintf("--secure-port=%d", portAPIServer),
			"--endpoint-reconciler-type=none",
			"--service-cluster-ip-range=" + serviceRange,
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--client-ca-file=" + l.pki("ca.crt"),
			"--tls-cert-file=" + l.pki("kube-apiserver.crt"),
			"--tls-private-key-file=" + l.pki("kube-apiserver.key"),
			"--kubelet-certificate-authority=" + l.pki("ca.crt"),
			"--kubelet-client-certificate=" + l.pki(pairKubeletClient+".crt"),
			"--kubelet-client-key=" + l.pki(pairKubeletClient+".key"),
			"--kubelet-preferred-address-types=InternalIP",
			// Beta features that are disabled by default; a kubelet has its own gates.
			"--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true",
			"--runtime-config=certificates.k8s.io/v1beta1=true",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + l.pki("service-account.crt"),
			"--service-account-signing-key-file=" + l.pki("service-account.key"),
		},
	}
}

func (l Layout) scheduler() host.Command {
	return host.Command{
		Name: processScheduler,
		Path: l.Program("kube-scheduler"),
		Args: []string{
			"--kubeconfig=" + l.kubeconfig(userScheduler),
			"--authentication-kubeconfig=" + l.kubeconfig(userScheduler),
			"--authorization-kubeconfig=" + l.kubeconfig(userScheduler),
			"--bind-address=" + loopback,
			fmt.Sprintf("--secure-port=%d", portScheduler),
			"--cert-dir=" + l.run("scheduler"),
			"--leader-elect=false",
		},
	}
}

// controllerManager runs the controllers of a cluster without a cloud, among them the one that turns node conditions
// into taints.
func (l Layout) controllerManager() host.Command {
	return host.Command{
		Name: processController,
		Path: l.Program("kube-controller-manager"),
		Args: []string{
			"--kubeconfig=" + l.kubeconfig(userController),
			"--authentication-kubeconfig=" + l.kubeconfig(userController),
			"--authorization-kubeconfig=" + l.kubeconfig(userController),
			"--bind-address=" + loopback,
			fmt.Sprintf("--secure-port=%d", portController),
			"--cert-dir=" + l.run("controller-manager"),
			"--leader-elect=false",
			"--use-service-account-credentials",
			"--root-ca-file=" + l.pki("ca.crt"),
			"--service-account-private-key-file=" + l.pki("service-account.key"),
			"--cluster-signing-cert-file=" + l.pki("ca.crt"),
			"--cluster-signing-key-file=" + l.pki("ca.key"),
			"--controllers=*,-service-lb-controller,-node-route-controller,-cloud-node-lifecycle-controller",
		},
	}
}
