// Package server puts the agent on the network: the kubelet API with its debugging endpoints, the read-only port, the
// health port and the gRPC sockets for local clients.
//
// The HTTP handler itself is stock's (k8s.io/kubernetes/pkg/kubelet/server), so that every path, status code and
// authorization attribute is the same. What is ours is the host behind it (Host, which answers what the handler asks),
// the certificates (Certificates) and the life of the listeners (Servers): a listener that cannot be opened is an error
// of Run and never ends the process from here.
package server
