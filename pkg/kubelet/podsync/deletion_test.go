package podsync_test

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

// hangingRemover is a runtime in which removing a container never ends.
type hangingRemover struct {
	called chan kubecontainer.ContainerID
}

func (r hangingRemover) DeleteContainer(ctx context.Context, id kubecontainer.ContainerID) error {
	r.called <- id
	<-ctx.Done()
	return ctx.Err()
}

type noLatency struct{}

func (noLatency) RecordStatusUpdated(*v1.Pod)     {}
func (noLatency) DeletePodStartupState(types.UID) {}

// await polls until the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	limit, tick := time.NewTimer(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for !condition() {
		select {
		case <-limit.C:
			t.Fatalf("%s: not within 20 s", what)
		case <-tick.C:
		}
	}
}

// The whole way of a pod that is deleted, with the stock status manager at its end: workers, steps, final status, deletion in the API
// server. Meanwhile the runtime hangs in the removal of the pod's dead containers, which the sync loop has asked for.
func TestRemovalOfContainersDoesNotHoldBackTheDeletion(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	now := metav1.Now()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: "uid", DeletionTimestamp: &now, DeletionGracePeriodSeconds: new(int64(1))},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}, TerminationGracePeriodSeconds: new(int64(1))},
	}
	client := fake.NewClientset(pod)
	pods, store := kubepod.NewBasicPodManager(), podlifecycle.NewStore()
	pods.SetPods([]*v1.Pod{pod})
	statuses := status.NewManager(client, pods, deletionSafety{store}, noLatency{})
	statuses.Start(ctx)

	config, stopped := podsync.StoppedWorld(statuses)
	syncer, cache := podsync.New(config), kubecontainer.NewCache()
	workers := podworkers.New(podworkers.Config{
		Store: store, Syncer: syncer, Runtime: syncer, PodCache: cache, Queue: queue.NewBasicWorkQueue(clock.RealClock{}), Recorder: record.NewFakeRecorder(100),
		ResyncInterval: time.Minute, BackoffPeriod: time.Second,
	})
	pleg := func() bool { return cache.Set("uid", stopped, nil, time.Now()) }
	pleg()

	remover := hangingRemover{called: make(chan kubecontainer.ContainerID, 10)}
	deletor := housekeeping.NewContainerDeletor(remover, 0)
	go deletor.Run(ctx)
	dead := housekeeping.DeadContainers{Statuses: cache, Lifecycle: store, Deletor: deletor}
	dead.Exited(ctx, "uid", "id-b")
	if id := <-remover.called; id.ID != "id-b" {
		t.Fatalf("removes %v", id)
	}

	workers.UpdatePod(ctx, podworkers.Update{UpdateType: kubetypes.SyncPodUpdate, Pod: pod})
	await(t, "the pod is gone from the API server", func() bool {
		pleg()
		cache.UpdateTime(time.Now())
		dead.Exited(ctx, "uid", "id-a")
		_, err := client.CoreV1().Pods("ns").Get(ctx, "pod", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	await(t, "the worker has finished", func() bool { return store.IsPodKnownTerminated("uid") })
	if len(remover.called) != 0 {
		t.Errorf("removed although the first removal hangs: %d", len(remover.called))
	}
	if err := workers.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// deletionSafety is what the composition answers the status manager.
type deletionSafety struct{ store *podlifecycle.Store }

func (d deletionSafety) PodCouldHaveRunningContainers(pod *v1.Pod) bool {
	return d.store.CouldHaveRunningContainers(pod.UID)
}
