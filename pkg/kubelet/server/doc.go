// Package server has the listeners of the agent: the kubelet API with its debugging endpoints, the read-only port, the
// health port and the gRPC sockets for local clients.
//
// The HTTP handler is stock's (k8s.io/kubernetes/pkg/kubelet/server), so that every path, status code and authorization
// attribute is the same. This package implements its interface (Host), the certificates (Certificates) and the
// lifecycle of the listeners (Servers): a listener that cannot be opened is an error of Run and does not end the
// process here.
package server
