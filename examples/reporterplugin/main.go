// Command reporterplugin is a reporter plugin that reports the kernel of the node, as annotation example.com/kernel.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
)

type plugin struct {
	v1alpha1.UnimplementedReporterPluginServer
	registration.UnimplementedRegistrationServer
}

func (plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "ReporterPlugin", Name: "example", SupportedVersions: []string{"v1alpha1"}}, nil
}

func (plugin) NotifyRegistrationStatus(
	_ context.Context, s *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %s", s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (plugin) GetReportContent(context.Context, *v1alpha1.Empty) (*v1alpha1.GetReportContentResponse, error) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(map[string]string{"example.com/kernel": strings.TrimSpace(string(release))})
	return &v1alpha1.GetReportContentResponse{Content: []*v1alpha1.ReportContent{{
		GroupVersionKind: &v1alpha1.GroupVersionKind{
			Group: "node.katalyst.kubewharf.io", Version: "v1alpha1", Kind: "CustomNodeResource"},
		Field: []*v1alpha1.ReportField{{FieldType: v1alpha1.FieldType_Metadata, FieldName: "Annotations", Value: value}},
	}}}, err
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
	v1alpha1.RegisterReporterPluginServer(server, plugin{})
	log.Fatal(server.Serve(listener))
}
