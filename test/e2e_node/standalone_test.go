//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestStandaloneKubeletJoins runs a static pod on a kubelet without an API server, and then restarts the kubelet with
// one. The container is not restarted.
func TestStandaloneKubeletJoins(t *testing.T) {
	s := spaceForRestart(t)
	s.must(node.StopKubelet(s.ctx))
	t.Cleanup(func() { node.SetStandalone(false) })
	node.SetStandalone(true)
	s.must(node.StartKubelet(s.ctx, nil))
	s.writeManifest(kit.IdlePod("static"))
	var alone *v1.Pod
	s.eventually(podTimeout, func(ctx context.Context) error {
		var err error
		if alone, err = s.podOfKubelet(ctx, "static"); err != nil {
			return err
		}
		return kit.Ready(alone)
	})

	s.must(node.StopKubelet(s.ctx))
	node.SetStandalone(false)
	s.must(node.StartKubelet(s.ctx, nil))
	joined := s.mirror("static", kit.Ready)
	s.expect("container", joined.Status.ContainerStatuses[0].ContainerID, alone.Status.ContainerStatuses[0].ContainerID)
}

// podOfKubelet returns the static pod called name, as the kubelet serves it.
func (s *space) podOfKubelet(ctx context.Context, name string) (*v1.Pod, error) {
	code, body, err := node.KubeletGet(ctx, "/pods", true)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("get the pods: code %d: %.200s", code, body)
	}
	var list v1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode pods: %w", err)
	}
	for i, pod := range list.Items {
		if pod.Namespace == s.name && pod.Annotations["kubernetes.io/config.source"] == "file" {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no static pod %s among the %d pods of the kubelet", name, len(list.Items))
}

func TestRequestsWithoutCredentialsAreRejected(t *testing.T) {
	t.Parallel()
	useCluster(t, standard)
	paths := []string{"/pods", "/stats/summary", "/metrics", "/configz", "/containerLogs/a/b/c", "/exec/a/b/c"}
	for _, path := range paths {
		var code int
		var body []byte
		// The kubelet may have been started by the test before this one, and does not serve yet.
		err := kit.Poll(t.Context(), podTimeout, func(ctx context.Context) (err error) {
			code, body, err = node.KubeletGet(ctx, path, false)
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if code != http.StatusUnauthorized {
			t.Errorf("%s without credentials returned %d: %.200s", path, code, body)
		}
	}
}
