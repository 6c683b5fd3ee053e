package podworkers

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// sandboxes are the sandboxes of a runtime. Pods whose UID is in gone end before they are read.
type sandboxes struct {
	all          []*runtimeapi.PodSandbox
	gone         []types.UID
	list, getPod error
}

func (s *sandboxes) add(uid, name, source string, state runtimeapi.PodSandboxState) {
	s.all = append(s.all, &runtimeapi.PodSandbox{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "system", Uid: uid},
		Annotations: map[string]string{kubetypes.ConfigSourceAnnotationKey: source},
		State:       state,
	})
}

func (s *sandboxes) ListPodSandbox(
	_ context.Context, filter *runtimeapi.PodSandboxFilter,
) (found []*runtimeapi.PodSandbox, err error) {
	for _, sandbox := range s.all {
		if filter.GetState() == nil || sandbox.State == filter.GetState().State {
			found = append(found, sandbox)
		}
	}
	return found, s.list
}

func (s *sandboxes) GetPod(_ context.Context, uid types.UID) (*kubecontainer.Pod, error) {
	if slices.Contains(s.gone, uid) {
		return nil, kubecontainer.ErrPodNotFound
	}
	return &kubecontainer.Pod{ID: uid}, s.getPod
}

func TestRunningStaticPods(t *testing.T) {
	s := &sandboxes{gone: []types.UID{"gone"}}
	ready, notReady := runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	s.add("from-file", "etcd", kubetypes.FileSource, ready)
	s.add("from-url", "etcd", kubetypes.HTTPSource, ready)
	s.add("from-api", "etcd", kubetypes.ApiserverSource, ready)
	s.add("other-name", "proxy", kubetypes.FileSource, ready)
	s.add("stopped", "etcd", kubetypes.FileSource, notReady)
	s.add("gone", "etcd", kubetypes.FileSource, ready)
	earlier := NewEarlierStaticPods(s, s)
	pods, err := earlier.RunningStaticPods(t.Context(), "etcd_system")
	if err != nil {
		t.Fatal(err)
	}
	var uids []types.UID
	for _, pod := range pods {
		uids = append(uids, pod.ID)
	}
	if want := []types.UID{"from-file", "from-url"}; !slices.Equal(uids, want) {
		t.Errorf("found %q, want %q", uids, want)
	}
	// If the runtime returns an error, no pod may be started.
	for _, failure := range []*error{&s.list, &s.getPod} {
		*failure = errors.New("no answer")
		if _, err := earlier.RunningStaticPods(t.Context(), "etcd_system"); !errors.Is(err, *failure) {
			t.Errorf("error %v, want %v", err, *failure)
		}
		*failure = nil
	}
}
