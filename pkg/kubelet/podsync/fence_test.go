package podsync

import (
	"context"
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// The limits of a pod that an earlier run has fenced are repaired before the status is published, or the containers are
// stopped, and a failure holds up neither.
func TestEarlierFenceIsRepairedFirst(t *testing.T) {
	w := newWorld()
	config := w.config()
	config.RepairFence = func(_ context.Context, pod *v1.Pod) error {
		_ = w.called("repair %s", pod.Name)
		return errors.New("the cgroup is busy")
	}
	s := New(config)
	pass, termination := newSyncPass(SyncRequest{Pod: testPod()}), newTerminatePass(TerminateRequest{Pod: testPod()})
	names := func(list []string, first, second string) {
		t.Helper()
		if i, j := slices.Index(list, first), slices.Index(list, second); i < 0 || j < i {
			t.Errorf("%q at %d, %q at %d: %q", first, i, second, j, list)
		}
	}
	var sync, terminate []string
	for _, step := range s.sync {
		sync = append(sync, step.Name())
	}
	for _, step := range s.terminate {
		terminate = append(terminate, step.Name())
	}
	names(sync, repairSync{}.Name(), publishStatus{}.Name())
	names(terminate, repairTermination{}.Name(), killContainers{}.Name())
	result, err := repairSync{config.RepairFence}.Run(t.Context(), pass)
	if result != nextStep || err != nil {
		t.Errorf("sync: result %v, error %v", result, err)
	}
	result, err = repairTermination{config.RepairFence}.Run(t.Context(), termination)
	if result != nextStep || err != nil {
		t.Errorf("termination: result %v, error %v", result, err)
	}
	if want := []string{"repair " + testPod().Name, "repair " + testPod().Name}; !slices.Equal(w.journal, want) {
		t.Errorf("calls %q, want %q", w.journal, want)
	}
}

// How a fenced pod has ended is known when its containers have stopped.
func TestDetailInTheFinalStatus(t *testing.T) {
	w := newWorld()
	w.api.Message = "low on memory"
	d := &podkill.Disruption{Message: "low on memory", Detail: func() string { return "; fenced" }}
	p := newTerminatePass(TerminateRequest{Pod: testPod(), Disruption: d})
	p.stopped = w.inRuntime
	config := w.config()
	step := publishStopped{generator: config.Generator, statuses: config.Statuses, shutdown: config.Shutdown}
	if _, err := step.Run(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got := w.published[p.Pod.UID].Message; got != "low on memory; fenced" {
		t.Errorf("message %q", got)
	}
}
