package runtimestate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/runtimestate"
)

// fakeRuntime returns its fields and counts the queries.
type fakeRuntime struct {
	status  *kubecontainer.RuntimeStatus
	err     error
	queries int
}

func (f *fakeRuntime) Status(context.Context) (*kubecontainer.RuntimeStatus, error) {
	f.queries++
	return f.status, f.err
}

func conditions(runtime, network bool) *kubecontainer.RuntimeStatus {
	return &kubecontainer.RuntimeStatus{
		Conditions: []kubecontainer.RuntimeCondition{
			{Type: kubecontainer.RuntimeReady, Status: runtime, Reason: "R", Message: "m"},
			{Type: kubecontainer.NetworkReady, Status: network, Reason: "N", Message: "m"},
		},
		Handlers: []kubecontainer.RuntimeHandler{{Name: "runc"}},
		Features: &kubecontainer.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
}

func TestUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{err: errors.New("connection refused")}
		state := runtimestate.New(30 * time.Second)
		firsts := 0
		u := runtimestate.NewUpdater(runtimestate.UpdaterConfig{Runtime: rt, State: state,
			OnFirstReady: func(context.Context) {
				firsts++
				wantError(t, state.RuntimeErrors(), "container runtime status check may not have completed yet")
				if len(state.RuntimeHandlers()) != 1 {
					t.Error("OnFirstReady is called before the handlers are recorded")
				}
			}})
		ctx := t.Context()
		u.Update(ctx)
		wantError(t, state.NetworkErrors(), "network state unknown")

		rt.err = nil
		u.Update(ctx)
		wantError(t, state.NetworkErrors(), "network state unknown")

		rt.status = &kubecontainer.RuntimeStatus{}
		u.Update(ctx)
		wantError(t, state.NetworkErrors(), "container runtime network not ready: <nil>")

		rt.status = conditions(false, false)
		u.ExpectReady()
		u.Update(ctx)
		wantError(t, state.RuntimeErrors(), "[container runtime status check may not have completed yet, "+
			"container runtime not ready: RuntimeReady=false reason:R message:m]")
		wantError(t, state.NetworkErrors(), "container runtime network not ready: NetworkReady=false reason:N message:m")
		if firsts != 0 || state.RuntimeFeatures() != nil {
			t.Error("the runtime counts as ready")
		}

		rt.status = conditions(true, false)
		u.Update(ctx)
		wantError(t, state.RuntimeErrors(), "")
		rt.status = conditions(true, true)
		u.Update(ctx)
		wantError(t, state.NetworkErrors(), "")
		if firsts != 1 || !state.RuntimeFeatures().SupplementalGroupsPolicy {
			t.Errorf("%d first times, features %v", firsts, state.RuntimeFeatures())
		}

		// The runtime counts as down only after maxSyncAge.
		rt.err = errors.New("time-out")
		time.Sleep(29 * time.Second)
		u.Update(ctx)
		wantError(t, state.RuntimeErrors(), "")
		time.Sleep(time.Second)
		wantError(t, state.RuntimeErrors(), "container runtime is down")
	})
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{status: conditions(true, true)}
		u := runtimestate.NewUpdater(runtimestate.UpdaterConfig{Runtime: rt, State: runtimestate.New(time.Minute)})
		ctx, stop := context.WithTimeout(t.Context(), 3*runtimestate.UpdatePeriod-1)
		defer stop()
		u.Run(ctx)
		if rt.queries != 3 {
			t.Errorf("%d queries", rt.queries)
		}
	})
}

func TestAwaitPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		late := func(context.Context) ([]*kubecontainer.Pod, error) {
			if calls++; calls < 4 {
				return nil, errors.New("not yet")
			}
			return []*kubecontainer.Pod{{ID: "a"}}, nil
		}
		if pods, err := runtimestate.AwaitPods(t.Context(), late); err != nil || len(pods) != 1 || pods[0].ID != "a" {
			t.Errorf("listed %v: %v", pods, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		never := func(context.Context) ([]*kubecontainer.Pod, error) { return nil, errors.New("never") }
		if pods, err := runtimestate.AwaitPods(ctx, never); err == nil || ctx.Err() == nil {
			t.Errorf("listed %v without an answer: %v", pods, err)
		}
	})
}
