package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	criutil "k8s.io/cri-client/pkg/util"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesalpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	apisgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/apis/pods"
	"k8s.io/kubernetes/pkg/kubelet/util"
)

// socketDrainTimeout is how long a stop waits for local clients; a watch never ends by itself.
const socketDrainTimeout = 2 * time.Second

func (s *Servers) podResources(ctx context.Context) (*service, error) {
	cfg := s.cfg.PodResources
	if cfg == nil {
		return nil, nil
	}
	grpcServer := grpc.NewServer(apisgrpc.WithRateLimiter(ctx, "podresources", podresources.DefaultQPS,
		podresources.DefaultBurstTokens))
	podresourcesalpha.RegisterPodResourcesListerServer(grpcServer,
		podresources.NewV1alpha1PodResourcesServer(cfg.Providers))
	podresourcesapi.RegisterPodResourcesListerServer(grpcServer, podresources.NewV1PodResourcesServer(ctx, cfg.Providers))
	return listenLocal(ctx, "PodResources API", cfg.Directory, podresources.Socket, grpcServer)
}

func (s *Servers) pods(ctx context.Context) (*service, error) {
	cfg := s.cfg.Pods
	if cfg == nil {
		return nil, nil
	}
	grpcServer := grpc.NewServer(apisgrpc.WithRateLimiter(ctx, "pods", pods.DefaultQPS, pods.DefaultBurstTokens))
	podsapi.RegisterPodsServer(grpcServer, cfg.Server)
	return listenLocal(ctx, "pods API", cfg.Directory, pods.Socket, grpcServer)
}

// listenLocal binds <dir>/<socket>.sock, and replaces the socket of an earlier process.
func listenLocal(ctx context.Context, name, dir, socket string, grpcServer *grpc.Server) (*service, error) {
	endpoint, err := util.LocalEndpoint(dir, socket)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	listener, err := criutil.CreateListener(endpoint)
	if err != nil {
		return nil, fmt.Errorf("%s: listen on %s: %w", name, endpoint, err)
	}
	klog.FromContext(ctx).Info("Starting to serve", "server", name, "endpoint", endpoint)
	return &service{name, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { stopGracefully(grpcServer) })()
		if err := grpcServer.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	}}, nil
}

// stopGracefully waits up to socketDrainTimeout for calls in progress, then aborts them.
func stopGracefully(grpcServer *grpc.Server) {
	abort := time.AfterFunc(socketDrainTimeout, grpcServer.Stop)
	defer abort.Stop()
	grpcServer.GracefulStop()
}
