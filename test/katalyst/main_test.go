package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubewharf/katalyst-api/pkg/protocol/evictionplugin/v1alpha1"
)

// The plugin registers, answers what its control file says, stops, and starts again.
func TestPlugin(t *testing.T) {
	dir := t.TempDir()
	calls := &callFile{name: filepath.Join(dir, "calls")}
	p := &plugin{name: "skeleton", control: filepath.Join(dir, "control.json"), calls: calls}
	socket := filepath.Join(dir, "skeleton.sock")
	write(t, p.control, `{"serve": true,
		"evict": [{"pod": "shop/web", "reason": "too big", "force": true, "graceSeconds": 0}, {"pod": "uid:other"}],
		"threshold": {"met": "HARD_MET", "scope": "memory", "target": 1, "observed": 2, "graceSeconds": 10,
			"candidates": ["shop/web"]},
		"top": {"pods": ["shop/web"]}, "condition": {"name": "Full", "met": true, "effects": ["NoSchedule"]}}`)
	stop, stopped := make(chan os.Signal, 1), make(chan error, 1)
	go func() { stopped <- run(stop, p, p.control, dir) }()

	until(t, "the socket appears", func() bool { return exists(socket) })
	conn := dial(t, socket)
	info, err := registration.NewRegistrationClient(conn).GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil || info.Type != "EvictionPlugin" || info.Name != "skeleton" || info.Endpoint != "" ||
		strings.Join(info.SupportedVersions, ",") != "v1alpha1" {
		t.Errorf("GetInfo: %v, %v", info, err)
	}
	pods := []*v1.Pod{goldenPod()}
	client := v1alpha1.NewEvictionPluginClient(conn)
	evict, err := client.GetEvictPods(t.Context(), &v1alpha1.GetEvictPodsRequest{ActivePods: pods})
	if err != nil || len(evict.EvictPods) != 2 || evict.EvictPods[0].Pod.UID != goldenPod().UID ||
		evict.EvictPods[0].DeletionOptions == nil || evict.EvictPods[1].Pod.UID != "other" || !evict.Condition.MetCondition {
		t.Errorf("GetEvictPods: %v, %v", evict, err)
	}
	met, err := client.ThresholdMet(t.Context(), &v1alpha1.GetThresholdMetRequest{ActivePods: pods})
	if err != nil || met.MetType != v1alpha1.ThresholdMetType_HARD_MET || met.GracePeriodSeconds != 10 ||
		met.EvictionScope != "memory" || len(met.CandidatePods) != 1 {
		t.Errorf("ThresholdMet: %v, %v", met, err)
	}
	question := &v1alpha1.GetTopEvictionPodsRequest{ActivePods: pods, TopN: 1, EvictionScope: "memory"}
	top, err := client.GetTopEvictionPods(t.Context(), question)
	if err != nil || len(top.TargetPods) != 1 || top.DeletionOptions != nil {
		t.Errorf("GetTopEvictionPods: %v, %v", top, err)
	}
	if _, err := client.GetToken(t.Context(), &v1alpha1.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("GetToken without a token: %v", err)
	}
	checkCalls(t, calls.name)
	write(t, p.control, `{"serve": true, "token": "secret"}`)
	if answer, err := client.GetToken(t.Context(), &v1alpha1.Empty{}); err != nil || answer.Token != "secret" {
		t.Errorf("GetToken: %v, %v", answer, err)
	}

	write(t, p.control, `{"serve": false}`)
	until(t, "the socket is removed", func() bool { return !exists(socket) })
	write(t, p.control, `{"serve": true}`)
	until(t, "the socket appears again", func() bool { return exists(socket) })
	client = v1alpha1.NewEvictionPluginClient(dial(t, socket))
	again, err := client.ThresholdMet(t.Context(), &v1alpha1.GetThresholdMetRequest{})
	if err != nil || again.MetType != v1alpha1.ThresholdMetType_NOT_MET {
		t.Errorf("ThresholdMet: %v, %v", again, err)
	}
	stop <- syscall.SIGTERM
	if err := <-stopped; err != nil || exists(socket) {
		t.Errorf("stopped with %v, socket there: %v", err, exists(socket))
	}
}

func checkCalls(t *testing.T, file string) {
	t.Helper()
	var names []string
	for line := range strings.Lines(string(read(t, file))) {
		var c call
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		names = append(names, c.Call)
		if len(c.Pods) != 1 || c.Pods[0] != "shop/web" || (c.TopN == 1) != (c.Call == "GetTopEvictionPods") {
			t.Errorf("call %s", line)
		}
	}
	if got := strings.Join(names, " "); got != "GetEvictPods ThresholdMet GetTopEvictionPods" {
		t.Errorf("calls %s", got)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for ctx, tick := t.Context(), time.NewTicker(20*time.Millisecond); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(what)
		}
	}
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.DialContext(t.Context(), socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithBlock(), grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", name)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
