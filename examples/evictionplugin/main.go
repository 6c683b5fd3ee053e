// Command evictionplugin is an eviction plugin that requests the pods with the annotation example.com/evict.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
)

type plugin struct {
	v1alpha1.UnimplementedEvictionPluginServer
	registration.UnimplementedRegistrationServer
}

func (plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "EvictionPlugin", Name: "example", SupportedVersions: []string{"v1alpha1"}}, nil
}

func (plugin) NotifyRegistrationStatus(
	_ context.Context, s *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %s", s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (plugin) GetEvictPods(_ context.Context, r *v1alpha1.GetEvictPodsRequest) (*v1alpha1.GetEvictPodsResponse, error) {
	answer := &v1alpha1.GetEvictPodsResponse{}
	for _, encoded := range r.ActivePods {
		var pod v1.Pod
		if err := pod.Unmarshal(encoded); err != nil {
			return nil, err
		}
		if reason, ok := pod.Annotations["example.com/evict"]; ok {
			answer.EvictPods = append(answer.EvictPods, &v1alpha1.EvictPod{Pod: encoded, Reason: reason, ForceEvict: true})
		}
	}
	return answer, nil
}

func main() {
	socket := flag.String("socket", "/var/lib/kubelet/plugins_registry/example.sock", "the socket to serve on")
	flag.Parse()
	_ = os.Remove(*socket) // of a process that was killed
	listener, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, plugin{})
	v1alpha1.RegisterEvictionPluginServer(server, plugin{})
	log.Fatal(server.Serve(listener))
}
