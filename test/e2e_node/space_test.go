//go:build e2e

package e2enode

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// podTimeout is how long a pod may take to start, or to end.
	podTimeout = 2 * time.Minute
	// slowTimeout is for what depends on slow loops of a kubelet: volumes that are updated, back-off, pressure.
	slowTimeout = 5 * time.Minute
)

// space is the namespace of a test and what the test does in it. Methods that fail the test may only be called from the
// test's goroutine.
type space struct {
	t      testing.TB
	ctx    context.Context
	client kubernetes.Interface
	name   string
}

// newSpace creates a namespace on the standard cluster, whose kubelet has its first configuration. The namespace is
// deleted when the test ends.
func newSpace(t testing.TB) *space {
	t.Helper()
	useCluster(t, standard)
	useFirstKubelet(t)
	return newNamespace(t)
}

// spaceForRestart is newSpace for a test that starts with a restart of the kubelet. Until then the kubelet may have the
// configuration of an earlier test, so that it is restarted once and not twice. The node is not under memory pressure.
func spaceForRestart(t testing.TB) *space {
	t.Helper()
	useCluster(t, standard)
	s := newNamespace(t)
	if err := kit.MemoryPressure(s.ctx, s.client, false); err != nil {
		useFirstKubelet(t) // ends the pressure soon
		s.noPressure()
	}
	return s
}

// newNamespace is newSpace on the running cluster.
func newNamespace(t testing.TB) *space {
	t.Helper()
	s := &space{t: t, ctx: t.Context(), client: node.Client()}
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	created, err := s.client.CoreV1().Namespaces().Create(s.ctx, namespace, metav1.CreateOptions{})
	s.must(err)
	s.name = created.Name
	t.Cleanup(func() {
		if t.Failed() {
			s.report()
		}
		if err := s.client.CoreV1().Namespaces().Delete(context.Background(), s.name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace: %v", err)
		}
	})
	s.eventually(podTimeout, func(ctx context.Context) error {
		_, err := s.client.CoreV1().ServiceAccounts(s.name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return s
}

// watch calls holds again and again. Function stop ends that and returns the first error.
func (s *space) watch(holds func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(s.ctx)
	lost := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		var first error
		for ctx.Err() == nil {
			if err := holds(ctx); err != nil && ctx.Err() == nil && first == nil {
				first = err
			}
			<-ticker.C
		}
		lost <- first
	}()
	return func() error {
		cancel()
		return <-lost
	}
}

// parallelSpace is newSpace for a test that does not change the node.
func parallelSpace(t *testing.T) *space {
	t.Helper()
	t.Parallel()
	return newSpace(t)
}

func (s *space) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) eventually(limit time.Duration, check func(context.Context) error) {
	s.t.Helper()
	s.must(kit.Poll(s.ctx, limit, check))
}

func (s *space) create(pod *v1.Pod) *v1.Pod {
	s.t.Helper()
	created, err := s.client.CoreV1().Pods(s.name).Create(s.ctx, pod, metav1.CreateOptions{})
	s.must(err)
	return created
}

// ready creates the pod and waits until it is Ready.
func (s *space) ready(pod *v1.Pod) *v1.Pod {
	s.t.Helper()
	return s.wait(s.create(pod), podTimeout, kit.Ready)
}

// succeeded creates the pod and waits until it has succeeded.
func (s *space) succeeded(pod *v1.Pod) *v1.Pod {
	s.t.Helper()
	return s.wait(s.create(pod), podTimeout, ended(v1.PodSucceeded))
}

func (s *space) wait(pod *v1.Pod, limit time.Duration, check func(*v1.Pod) error) *v1.Pod {
	s.t.Helper()
	got, err := kit.WaitPod(s.ctx, s.client, pod, limit, check)
	s.must(err)
	return got
}

func (s *space) get(name string) *v1.Pod {
	s.t.Helper()
	pod, err := s.client.CoreV1().Pods(s.name).Get(s.ctx, name, metav1.GetOptions{})
	s.must(err)
	return pod
}

// remove deletes the pod and waits until it is gone.
func (s *space) remove(pod *v1.Pod) {
	s.t.Helper()
	s.must(s.client.CoreV1().Pods(pod.Namespace).Delete(s.ctx, pod.Name, metav1.DeleteOptions{}))
	s.must(kit.WaitGone(s.ctx, s.client, pod, podTimeout))
}

// logs returns the log of the container called main.
func (s *space) logs(pod *v1.Pod) string {
	s.t.Helper()
	return s.kubectl("logs", pod.Name, "-c", "main")
}

// expectLog waits until the log of the container called main is want.
func (s *space) expectLog(pod *v1.Pod, want string) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		if got := s.logs(pod); got != want {
			return fmt.Errorf("log is %q, want %q", got, want)
		}
		return nil
	})
}

// sh runs a script in the container called main and returns its output.
func (s *space) sh(pod *v1.Pod, script string) string {
	s.t.Helper()
	return s.kubectl("exec", pod.Name, "-c", "main", "--", "sh", "-c", script)
}

// kubectl runs kubectl in the namespace and returns its output without blanks at either end.
func (s *space) kubectl(args ...string) string {
	s.t.Helper()
	cmd := s.kubectlCommand(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String())
}

func (s *space) kubectlCommand(args ...string) *exec.Cmd {
	layout := node.Layout()
	cmd := exec.CommandContext(s.ctx, layout.Program("kubectl"), append([]string{"--namespace", s.name}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+layout.AdminConfig())
	return cmd
}

// report logs the pods and events of a failed test.
func (s *space) report() {
	pods, err := s.client.CoreV1().Pods(s.name).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		s.t.Logf("list pods: %v", err)
		return
	}
	for i := range pods.Items {
		s.t.Logf("pod %s: %s", pods.Items[i].Name, kit.Describe(&pods.Items[i]))
	}
	events, err := s.client.CoreV1().Events(s.name).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		s.t.Logf("list events: %v", err)
		return
	}
	for _, event := range events.Items {
		s.t.Logf("event %s %s %s: %s",
			event.LastTimestamp.Format(time.TimeOnly), event.InvolvedObject.Name, event.Reason, event.Message)
	}
}

// expect compares two texts.
func (s *space) expect(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s is %q, want %q", what, got, want)
	}
}
