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

// alphaGates enables the alpha features that concern the composition of the kubelet.
func alphaGates(config *kubeletv1beta1.KubeletConfiguration) {
	config.FeatureGates = map[string]bool{"PodsAPI": true, "EventedPLEG": true}
}

// TestAlphaGates enables alpha features: the kubelet receives events of the runtime, and serves the pods API to
// programs on the node.
func TestAlphaGates(t *testing.T) {
	s := spaceForRestart(t)
	s.restartKubelet(alphaGates)
	socket := filepath.Join(node.Layout().KubeletRoot(), "pods-api", "pods-api.sock")
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	t.Cleanup(func() { _ = connection.Close() })
	api := podsapi.NewPodsClient(connection)
	watched := s.watchPods(api)
	s.eventually(podTimeout, func(context.Context) error {
		return watched.has("", podsapi.EventType_INITIAL_SYNC_COMPLETE)
	})

	pod := s.ready(kit.IdlePod("pod"))
	s.must(s.reportsPod(api, pod))
	pod = s.crash(pod)
	s.succeeded(kit.Pod("done", "true"))
	s.remove(pod)
	s.eventually(podTimeout, func(context.Context) error {
		return errors.Join(watched.has(pod.UID, podsapi.EventType_ADDED),
			watched.has(pod.UID, podsapi.EventType_MODIFIED), watched.has(pod.UID, podsapi.EventType_DELETED))
	})
	if _, err := api.GetPod(s.ctx, &podsapi.GetPodRequest{PodUID: string(pod.UID)}); status.Code(err) != codes.NotFound {
		t.Errorf("getting a deleted pod returned %v, want NotFound", err)
	}
	if got := s.mustMetric("kubelet_evented_pleg_connection_success_count"); got < 1 {
		t.Errorf("the kubelet connected to the runtime's events %v times, want once at least", got)
	}
}

// reportsPod is nil if the API returns the pod by UID and in its list.
func (s *space) reportsPod(api podsapi.PodsClient, pod *v1.Pod) error {
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
		var decoded v1.Pod
		if err := decoded.Unmarshal(data); err != nil {
			return err
		}
		if decoded.UID == pod.UID {
			names = append(names, decoded.Name)
		}
	}
	if !slices.Equal(names, []string{pod.Name, pod.Name}) {
		return fmt.Errorf("the list and the get request returned the pods %v, want %s twice", names, pod.Name)
	}
	return nil
}

// watchedPods are the events that a watch has received, by pod.
type watchedPods struct {
	mu     sync.Mutex
	events map[types.UID][]podsapi.EventType
}

func (s *space) watchPods(api podsapi.PodsClient) *watchedPods {
	s.t.Helper()
	stream, err := api.WatchPods(s.ctx, &podsapi.WatchPodsRequest{})
	s.must(err)
	watched := &watchedPods{events: map[types.UID][]podsapi.EventType{}}
	// Recv fails when the test or the kubelet ends.
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
	// The event at the end of the first list has no pod.
	_ = pod.Unmarshal(event.Pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[pod.UID] = append(w.events[pod.UID], event.Type)
}

func (w *watchedPods) has(pod types.UID, event podsapi.EventType) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.events[pod], event) {
		return fmt.Errorf("the events of pod %q are %v, want %v among them", pod, w.events[pod], event)
	}
	return nil
}
