package runtimestate_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/runtimestate"
)

func wantError(t *testing.T, got error, want string) {
	t.Helper()
	switch {
	case got == nil && want != "":
		t.Errorf("no error, want %q", want)
	case got != nil && got.Error() != want:
		t.Errorf("error is %q, want %q", got, want)
	}
}

func TestRuntimeErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runtimestate.New(30 * time.Second)
		wantError(t, s.RuntimeErrors(), "container runtime status check may not have completed yet")
		s.SetRuntimeSync(time.Now())
		wantError(t, s.RuntimeErrors(), "")
		time.Sleep(30*time.Second - 1)
		wantError(t, s.RuntimeErrors(), "")
		time.Sleep(1 * time.Nanosecond)
		wantError(t, s.RuntimeErrors(), "container runtime is down")

		broken := errors.New("no relist for 3m")
		s.AddHealthCheck("PLEG", func() (bool, error) { return broken == nil, broken })
		s.SetRuntimeError(errors.New("container runtime not ready: <nil>"))
		s.SetRuntimeSync(time.Now())
		wantError(t, s.RuntimeErrors(), "[PLEG is not healthy: no relist for 3m, container runtime not ready: <nil>]")
		if !errors.Is(s.RuntimeErrors(), broken) {
			t.Error("errors.Is does not find the cause")
		}
		broken = nil
		s.SetRuntimeError(nil)
		wantError(t, s.RuntimeErrors(), "")
	})
}

// A runtime that was down between two calls of LastDown is noticed.
func TestLastDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runtimestate.New(30 * time.Second)
		expect := func(want time.Time) {
			t.Helper()
			if got := s.LastDown(); !got.Equal(want) {
				t.Errorf("last down at %v, want %v", got, want)
			}
		}
		expect(time.Now())
		sync := func() time.Time { s.SetRuntimeSync(time.Now()); return time.Now() }
		first := sync()
		time.Sleep(20 * time.Second)
		expect(first)
		sync()
		time.Sleep(29 * time.Second)
		expect(first)
		time.Sleep(time.Minute)
		expect(time.Now())
		again := sync()
		time.Sleep(time.Second)
		expect(again)
		s.SetRuntimeError(errors.New("not ready"))
		time.Sleep(time.Second)
		expect(time.Now())
		s.SetRuntimeError(nil)
		ready := sync()
		time.Sleep(time.Second)
		expect(ready)
		s.AddHealthCheck("PLEG", func() (bool, error) { return false, nil })
		expect(ready)
	})
}

func TestHealthCheckMayUseTheState(t *testing.T) {
	s := runtimestate.New(time.Minute)
	s.AddHealthCheck("self", func() (bool, error) { s.SetPodCIDR("10.0.0.0/24"); return true, nil })
	s.SetRuntimeSync(time.Now())
	wantError(t, s.RuntimeErrors(), "")
	if s.PodCIDR() != "10.0.0.0/24" {
		t.Error("the check did not run")
	}
}

func TestNetworkAndStorageErrors(t *testing.T) {
	s := runtimestate.New(time.Minute)
	wantError(t, s.NetworkErrors(), "network state unknown")
	wantError(t, s.StorageErrors(), "")
	s.SetNetworkError(nil)
	s.SetStorageError(errors.New("CSINode is not yet initialized"))
	wantError(t, s.NetworkErrors(), "")
	wantError(t, s.StorageErrors(), "CSINode is not yet initialized")
}

func TestRuntimeHandlersAreOrdered(t *testing.T) {
	s := runtimestate.New(time.Minute)
	given := []kubecontainer.RuntimeHandler{{Name: "runc"}, {Name: ""}, {Name: "kata"}}
	s.SetRuntimeHandlers(given)
	want := []kubecontainer.RuntimeHandler{{Name: ""}, {Name: "kata"}, {Name: "runc"}}
	if got := s.RuntimeHandlers(); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if given[0].Name != "runc" {
		t.Error("the argument was changed")
	}
}
