package remote

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
)

// server is a plugin that answers what a test sets, and records requests.
type server struct {
	v1alpha1.UnimplementedEvictionPluginServer
	mu sync.Mutex

	demand    *v1alpha1.GetEvictPodsResponse
	threshold *v1alpha1.ThresholdMetResponse
	top       *v1alpha1.GetTopEvictionPodsResponse
	err       error

	evictRequest     *v1alpha1.GetEvictPodsRequest
	thresholdRequest *v1alpha1.GetThresholdMetRequest
	topRequest       *v1alpha1.GetTopEvictionPodsRequest
}

func (s *server) GetEvictPods(
	_ context.Context, r *v1alpha1.GetEvictPodsRequest,
) (*v1alpha1.GetEvictPodsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evictRequest = r
	return s.demand, s.err
}

func (s *server) ThresholdMet(
	_ context.Context, r *v1alpha1.GetThresholdMetRequest,
) (*v1alpha1.ThresholdMetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.thresholdRequest = r
	return s.threshold, s.err
}

func (s *server) GetTopEvictionPods(
	_ context.Context, r *v1alpha1.GetTopEvictionPodsRequest,
) (*v1alpha1.GetTopEvictionPodsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topRequest = r
	return s.top, s.err
}

// connect serves a plugin on a Unix socket, with the limits that gRPC has by default, and returns its adapter.
func connect(t *testing.T, describe *grpc.ServiceDesc, s any) *Plugin {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "p.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	g.RegisterService(describe, s)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		g.Stop()
		serving.Wait()
	})
	call := func(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error {
		return call(ctx, conn)
	}
	return New("test", call, &Encoder{})
}

func serve(t *testing.T, s *server) *Plugin {
	t.Helper()
	return connect(t, &v1alpha1.EvictionPlugin_ServiceDesc, s)
}

func podNamed(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + uid, Namespace: "default", UID: types.UID(uid)}}
}

func viewOf(uids ...string) *plugin.View {
	v := &plugin.View{}
	for _, uid := range uids {
		v.Pods = append(v.Pods, podNamed(uid))
	}
	return v
}

// marshalled returns the encoded pod.
func marshalled(t testing.TB, pod *v1.Pod) []byte {
	t.Helper()
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// podsIn decodes the pods of a request.
func podsIn(t *testing.T, encoded [][]byte) (pods []*v1.Pod) {
	t.Helper()
	for _, data := range encoded {
		pod := &v1.Pod{}
		if err := pod.Unmarshal(data); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	return pods
}

func uidsIn(t *testing.T, encoded [][]byte) (uids []types.UID) {
	t.Helper()
	for _, pod := range podsIn(t, encoded) {
		uids = append(uids, pod.UID)
	}
	return uids
}
