package containerspec_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/userns"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/containerspec"
)

func (w *world) userNamespaceHost() containerspec.UserNamespaceHost {
	return containerspec.UserNamespaceHost{
		Layout:          w.layout(),
		RuntimeHandlers: func() []kubecontainer.RuntimeHandler { return w.handlers },
		MaxPods:         110,
		Enabled:         true,
	}
}

// TestUserNamespacesSurviveRestart: a pod keeps its ID range when a new manager reads it from the pod's directory.
func TestUserNamespacesSurviveRestart(t *testing.T) {
	w := newWorld(t)
	pod := basicPod()
	hostUsers := false
	pod.Spec.HostUsers = &hostUsers
	mapping := func() *runtimeapi.UserNamespace {
		t.Helper()
		manager, err := userns.MakeUserNsManager(testLogger, w.userNamespaceHost(), nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg := w.config()
		cfg.UserNamespaces = manager
		got, err := newHelper(t, cfg).GetOrCreateUserNamespaceMappings(testLogger, pod, "")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := mapping()
	if before.Mode != runtimeapi.NamespaceMode_POD || len(before.Uids) != 1 || before.Uids[0].HostId < 65536 ||
		before.Uids[0].Length != 65536 {
		t.Fatalf("got %v", before)
	}
	if after := mapping(); after.String() != before.String() {
		t.Fatalf("after a restart %v, before %v", after, before)
	}
}

func TestHandlerSupportsUserNamespaces(t *testing.T) {
	w := newWorld(t)
	host := w.userNamespaceHost()
	for name, want := range map[string]struct{ supports, known bool }{
		"": {true, true}, "old": {false, true}, "lost": {false, false},
	} {
		supports, err := host.HandlerSupportsUserNamespaces(name)
		if supports != want.supports || (err == nil) != want.known {
			t.Errorf("%q: got %v, %v; want %+v", name, supports, err, want)
		}
	}
	w.handlers = nil
	if supports, err := host.HandlerSupportsUserNamespaces("any"); supports || err != nil {
		t.Errorf("a runtime without handlers: got %v, %v", supports, err)
	}
}

func TestListPodsFromDisk(t *testing.T) {
	w := newWorld(t)
	host := w.userNamespaceHost()
	if err := os.WriteFile(filepath.Join(w.layout().Pods(), "a-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := host.ListPodsFromDisk()
	if err != nil || !slices.Equal(got, []types.UID{podUID}) {
		t.Fatalf("got %v, %v", got, err)
	}
	if err := os.RemoveAll(w.layout().Pods()); err != nil {
		t.Fatal(err)
	}
	if _, err := host.ListPodsFromDisk(); !os.IsNotExist(err) {
		t.Fatalf("a missing pods directory: got %v", err)
	}
	if _, err := userns.MakeUserNsManager(testLogger, host, nil); err != nil {
		t.Fatalf("on a fresh node: %v", err)
	}
}
