package nodestatus

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/version"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

func TestValidateNodeIP(t *testing.T) {
	tests := []struct {
		ip   net.IP
		want string
	}{
		{nil, "must be a valid IP address"},
		{net.ParseIP("127.0.0.1"), "can't be loopback address"},
		{net.ParseIP("::1"), "can't be loopback address"},
		{net.ParseIP("224.0.0.1"), "can't be a multicast address"},
		{net.ParseIP("169.254.1.1"), "can't be a link-local unicast address"},
		{net.ParseIP("0.0.0.0"), "can't be an all zeros address"},
		{net.ParseIP("::"), "can't be an all zeros address"},
		{net.ParseIP("192.0.2.77"), "not found in the host's network interfaces"},
	}
	for _, tt := range tests {
		if err := ValidateNodeIP(tt.ip); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: error %v, want %q", tt.ip, err, tt.want)
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		if n, ok := addr.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			if err := ValidateNodeIP(n.IP); err != nil {
				t.Errorf("%v of this machine: %v", n.IP, err)
			}
		}
	}
}

func TestCheckCgroups(t *testing.T) {
	root := t.TempDir()
	w := newWorld()
	ref := NewView(ViewConfig{Name: testNode}).Ref()
	if err := checkCgroups(w, ref, 2, root); err == nil || err.Error() != cm.CgroupV2KernelWarning {
		t.Errorf("without cpu.stat: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "cpu.stat"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkCgroups(w, ref, 2, root); err != nil {
		t.Errorf("with cpu.stat: %v", err)
	}
	if len(w.events) != 0 {
		t.Errorf("events %v", w.events)
	}
	if err := checkCgroups(w, ref, 1, root); err == nil || w.count("CgroupV1") != 1 {
		t.Errorf("version 1: %v, events %v", err, w.events)
	}
	if err := CheckCgroups(w, ref, 3); err == nil || err.Error() != "unsupported cgroup version: 3" {
		t.Errorf("version 3: %v", err)
	}
}

func TestMachineIsReadOnce(t *testing.T) {
	w := newWorld()
	m, err := NewMachine(w)
	if err != nil {
		t.Fatal(err)
	}
	info, err := m.MachineInfo()
	if err != nil || !info.Timestamp.IsZero() || info.MachineID != "m" {
		t.Errorf("info %v, error %v", info, err)
	}
	if v, err := m.VersionInfo(); err != nil || v.KernelVersion != "6.1" {
		t.Errorf("version %v, error %v", v, err)
	}
	w.machineInfoFailure = errors.New("no")
	if again, _ := m.MachineInfo(); again != info {
		t.Error("read again")
	}
	if _, err := NewMachine(w); err == nil {
		t.Error("no error")
	}
}

func TestDiscoverFeatures(t *testing.T) {
	if err := version.SetDynamicVersion(version.Get().GitVersion); err != nil {
		t.Logf("version %q cannot be set: %v", version.Get().GitVersion, err)
	}
	without, err := DiscoverFeatures(utilfeature.DefaultFeatureGate, nil)
	if err != nil {
		t.Fatal(err)
	}
	with, err := DiscoverFeatures(utilfeature.DefaultFeatureGate,
		&kubecontainer.RuntimeFeatures{UserNamespacesHostNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []DeclaredFeatures{without, with} {
		if d.Names == nil || !slices.IsSorted(d.Names) || d.Version == nil {
			t.Errorf("%+v", d)
		}
	}
}

// An update that requires a feature which the node does not have causes an event with stock's text.
func TestCheckUpdate(t *testing.T) {
	const feature = "InPlacePodLevelResourcesVerticalScaling"
	own := utilversion.MustParse("1.36.0")
	declares := func(names ...string) DeclaredFeatures {
		set, err := ndf.DefaultFramework.MapSorted(names)
		if err != nil {
			t.Fatal(err)
		}
		return DeclaredFeatures{Version: own, Set: set}
	}
	before := &v1.Pod{Spec: v1.PodSpec{Resources: &v1.ResourceRequirements{}}}
	after := before.DeepCopy()
	after.Spec.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	missing := "Warning FailedNodeDeclaredFeaturesCheck Pod requires node features that are not available: " + feature
	for _, tc := range []struct {
		name     string
		declared DeclaredFeatures
		old, pod *v1.Pod
		want     string
	}{
		{"new pod", declares(), nil, after, ""},
		{"nothing required", declares(), before, before, ""},
		{"declared", declares(feature), before, after, ""},
		{"not declared", declares(), before, after, missing},
	} {
		recorder := record.NewFakeRecorder(1)
		tc.declared.CheckUpdate(t.Context(), recorder, tc.old, tc.pod)
		close(recorder.Events)
		if got := <-recorder.Events; got != tc.want {
			t.Errorf("%s: event %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestDeclaredFeaturesAreReportedUnlessThereAreNone(t *testing.T) {
	for _, declared := range [][]string{{"F"}, nil} {
		s := newAPIServer(nil)
		u := newUpdater(t, s, newWorld(), func(c *Config) { c.Reporting.DeclaredFeatures = declared })
		u.SyncNow(t.Context())
		if got := s.current().Status.DeclaredFeatures; !slices.Equal(got, declared) {
			t.Errorf("%v, want %v", got, declared)
		}
	}
}

// If one setter fails, the others are called nevertheless: a status without addresses is better than none.
func TestOneFailingSetterDoesNotStopTheOthers(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w, func(c *Config) { c.Reporting.NodeIPs = []net.IP{net.ParseIP("192.0.2.77")} })
	u.SyncNow(context.Background())
	node := s.current()
	if len(node.Status.Addresses) != 0 || condition(node, v1.NodeReady).Status != v1.ConditionTrue {
		t.Errorf("addresses %v, conditions %v", node.Status.Addresses, node.Status.Conditions)
	}
}
