package podsync_test

import (
	"context"
	"errors"
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
	"github.com/plimsoll-project/plimsoll/test/await"
	"github.com/plimsoll-project/plimsoll/test/fakeworkers"
)

// hangingRemover is a runtime in which the removal of a container never ends.
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

// A deleted pod goes through pod worker, steps, stock's status manager and deletion at the API server, while the
// runtime hangs in the removal of the pod's dead containers.
func TestHangingContainerRemovalDoesNotBlockDeletion(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	now := metav1.Now()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pod", Namespace: "ns", UID: "uid", DeletionTimestamp: &now, DeletionGracePeriodSeconds: new(int64(1)),
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}, TerminationGracePeriodSeconds: new(int64(1))},
	}
	client := fake.NewClientset(pod)
	pods, store := kubepod.NewBasicPodManager(), podlifecycle.NewStore()
	pods.SetPods([]*v1.Pod{pod})
	statuses := status.NewManager(client, pods, deletionSafety{store}, noLatency{})
	statuses.Start(ctx)

	config, stopped := podsync.StoppedPodConfig(statuses)
	syncer, cache := podsync.New(config), kubecontainer.NewCache()
	workers := podworkers.New(podworkers.Config{
		Store: store, Syncer: syncer, Runtime: syncer, PodCache: cache,
		Queue: queue.NewBasicWorkQueue(clock.RealClock{}), Recorder: record.NewFakeRecorder(100),
		Hastener: syncer, Overdue: syncer.Overdue, Allocation: fakeworkers.Allocation{},
		Terminations: fakeworkers.Terminations{}, EarlierStaticPods: fakeworkers.EarlierStaticPods{},
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
		t.Fatalf("the deletor removes %v", id)
	}

	workers.UpdatePod(ctx, podworkers.Update{UpdateType: kubetypes.SyncPodUpdate, Pod: pod})
	await.Until(t, "deletion at the API server", func() error {
		pleg()
		cache.UpdateTime(time.Now())
		dead.Exited(ctx, "uid", "id-a")
		_, err := client.CoreV1().Pods("ns").Get(ctx, "pod", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("the pod still exists"), err)
	})
	await.Until(t, "end of the worker", func() error {
		if !store.IsPodKnownTerminated("uid") {
			return errors.New("the pod has not terminated")
		}
		return nil
	})
	if len(remover.called) != 0 {
		t.Errorf("%d containers are removed although the first removal hangs", len(remover.called))
	}
	if err := workers.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// deletionSafety answers the status manager like the composition.
type deletionSafety struct{ store *podlifecycle.Store }

func (d deletionSafety) PodCouldHaveRunningContainers(pod *v1.Pod) bool {
	return d.store.CouldHaveRunningContainers(pod.UID)
}
