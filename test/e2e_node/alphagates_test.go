//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// alphaGates are the alpha features that are a part of the kubelet's own frame.
func alphaGates(config *kubeletv1beta1.KubeletConfiguration) {
	config.FeatureGates = map[string]bool{"PodsAPI": true, "EventedPLEG": true}
}

// TestAlphaGates switches alpha features on: the runtime tells the kubelet of events, and the kubelet tells programs on the node of pods.
func TestAlphaGates(t *testing.T) {
	s := newSpace(t)
	s.restartKubelet(alphaGates)
	connection, err := grpc.NewClient("unix://"+filepath.Join(node.Layout().KubeletRoot(), "pods-api", "pods-api.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	t.Cleanup(func() { _ = connection.Close() })
	api := podsapi.NewPodsClient(connection)
	watched := s.watchPods(api)
	s.eventually(podTimeout, func(context.Context) error { return watched.has("", podsapi.EventType_INITIAL_SYNC_COMPLETE) })

	pod := s.ready(kit.IdlePod("pod"))
	s.must(s.toldOf(api, pod))
	pod = s.crash(pod)
	s.succeeded(kit.Pod("done", "true"))
	s.remove(pod)
	s.eventually(podTimeout, func(context.Context) error {
		return errors.Join(watched.has(pod.UID, podsapi.EventType_ADDED), watched.has(pod.UID, podsapi.EventType_MODIFIED), watched.has(pod.UID, podsapi.EventType_DELETED))
	})
	if _, err := api.GetPod(s.ctx, &podsapi.GetPodRequest{PodUID: string(pod.UID)}); status.Code(err) != codes.NotFound {
		t.Errorf("when asked for a pod that is gone, the kubelet says %v", err)
	}
	if got := s.mustMetric("kubelet_evented_pleg_connection_success_count"); got < 1 {
		t.Errorf("the kubelet was connected to the runtime's events %v times", got)
	}
}

// toldOf asks for the pod in both ways.
func (s *space) toldOf(api podsapi.PodsClient, pod *v1.Pod) error {
	got, err := api.GetPod(s.ctx, &podsapi.GetPodRequest{PodUID: string(pod.UID)})
	if err != nil {
		return err
	}
	list, err := api.ListPods(s.ctx, &podsapi.ListPodsRequest{})
	if err != nil {
		return err
	}
	var names []string
	for _, data := range append(list.Pods, got.Pod) {
		var told v1.Pod
		if err := told.Unmarshal(data); err != nil {
			return err
		}
		if told.UID == pod.UID {
			names = append(names, told.Name)
		}
	}
	if !slices.Equal(names, []string{pod.Name, pod.Name}) {
		return fmt.Errorf("the kubelet tells of the pods %v, want %s when listed and when asked for it", names, pod.Name)
	}
	return nil
}

// watchedPods are the events that the kubelet has told, by pod.
type watchedPods struct {
	mu     sync.Mutex
	events map[types.UID][]podsapi.EventType
}

func (s *space) watchPods(api podsapi.PodsClient) *watchedPods {
	s.t.Helper()
	stream, err := api.WatchPods(s.ctx, &podsapi.WatchPodsRequest{})
	s.must(err)
	watched := &watchedPods{events: map[types.UID][]podsapi.EventType{}}
	// It ends with the test, or with the kubelet.
	go func() {
		for {
			event, err := stream.Recv()
			if err != nil {
				return
			}
			watched.add(event)
		}
	}()
	return watched
}

func (w *watchedPods) add(event *podsapi.WatchPodsEvent) {
	var pod v1.Pod
	// The event that ends the first list has no pod.
	_ = pod.Unmarshal(event.Pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[pod.UID] = append(w.events[pod.UID], event.Type)
}

func (w *watchedPods) has(pod types.UID, event podsapi.EventType) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.events[pod], event) {
		return fmt.Errorf("the kubelet told of pod %q the events %v, want %v among them", pod, w.events[pod], event)
	}
	return nil
}
