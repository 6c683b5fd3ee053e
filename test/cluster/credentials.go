package cluster

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster/pki"
)

// Names of key pairs, and of the kubeconfigs of those that are users.
const (
	userAdmin      = "admin"
	userKubelet    = "kubelet"
	userScheduler  = "kube-scheduler"
	userController = "kube-controller-manager"
	// userTaints changes the taints of the node for the kubelet (config/rbac/node-taints.yaml).
	userTaints    = "node-taints"
	pairAPIServer = "kube-apiserver"
	// pairKubeletClient is the client certificate of the API server for the kubelet.
	pairKubeletClient = "kube-apiserver-kubelet-client"
	pairAuthority     = "ca"
	pairTokens        = "service-account"
)

// requests are the certificates of a cluster whose API server has address server, beside loopback, and whose node has
// address nodeIP.
func requests(server string, nodeIP net.IP) map[string]pki.Request {
	local := net.ParseIP(loopback)
	return map[string]pki.Request{
		pairAPIServer: {
			CommonName: "kube-apiserver",
			DNSNames: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc." + clusterDomain,
			},
			IPs: []net.IP{local, net.ParseIP(serviceFirst), net.ParseIP(server)},
		},
		pairKubeletClient: {CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}},
		userAdmin:         {CommonName: "plimsoll-admin", Organizations: []string{"system:masters"}},
		userScheduler:     {CommonName: "system:kube-scheduler"},
		userController:    {CommonName: "system:kube-controller-manager"},
		userTaints: {
			CommonName:    "plimsoll:node-taints:" + NodeName,
			Organizations: []string{"plimsoll:node-taints"},
		},
		userKubelet: {
			CommonName:    "system:node:" + NodeName,
			Organizations: []string{"system:nodes"},
			DNSNames:      []string{NodeName},
			IPs:           []net.IP{local, nodeIP},
		},
	}
}

// writeCredentials creates an authority, all certificates and all kubeconfigs.
func writeCredentials(config Config, nodeIP net.IP) error {
	layout, server := config.Layout, config.address()
	authority, err := pki.NewAuthority("plimsoll-cluster", time.Now())
	if err != nil {
		return fmt.Errorf("make cluster authority: %w", err)
	}
	tokens, err := pki.NewSigningKey()
	if err != nil {
		return fmt.Errorf("make token key: %w", err)
	}
	pairs := map[string]pki.Pair{pairAuthority: authority.Pair(), pairTokens: tokens}
	for name, request := range requests(server, nodeIP) {
		if pairs[name], err = authority.Issue(request); err != nil {
			return err
		}
	}
	for name, pair := range pairs {
		if err := writePair(layout, name, pair); err != nil {
			return err
		}
	}
	for _, user := range []string{userAdmin, userKubelet, userScheduler, userController, userTaints} {
		if err := writeKubeconfig(layout, server, user, authority.Pair().Cert, pairs[user]); err != nil {
			return err
		}
	}
	return nil
}

func writePair(layout Layout, name string, pair pki.Pair) error {
	if err := os.WriteFile(layout.pki(name+".crt"), pair.Cert, 0o644); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	if err := os.WriteFile(layout.pki(name+".key"), pair.Key, 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}
