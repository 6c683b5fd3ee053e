//go:build vm

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// node is the machine that all tests share.
var node *Node

// groups is how the control groups of the machine are laid out: PLIMSOLL_VM_CGROUPS.
var groups Cgroups

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "vm: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := cluster.FindRoot(".")
	if err != nil {
		return 0, err
	}
	layout := NewLayout(root)
	image, err := Build(ctx, layout, os.Stderr)
	if err != nil {
		return 0, err
	}
	if groups, err = ParseCgroups(os.Getenv("PLIMSOLL_VM_CGROUPS")); err != nil {
		return 0, err
	}
	builder := build.Builder{Root: root, Out: layout.Bin, Log: os.Stderr}
	if err := builder.Build(ctx, build.KernelTests()); err != nil {
		return 0, err
	}
	config := Config{Layout: layout, Cgroups: groups, Tune: gracefulShutdown, Log: os.Stderr, Console: os.Stderr}
	for _, part := range build.KernelTests() {
		config.Programs = append(config.Programs, part.Name)
	}
	node, err = Start(ctx, config, image)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, node.Stop(context.Background())) }()
	// A signal ends the tests and then removes the machine.
	completed := context.AfterFunc(ctx, func() {
		fmt.Fprintln(os.Stderr, "vm: interrupted, cleaning up")
		if err := node.Stop(context.Background()); err != nil {
			fmt.Fprintf(os.Stderr, "vm: %v\n", err)
		}
		os.Exit(1)
	})
	code = m.Run()
	completed()
	return code, nil
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inMachine runs a command line in the machine.
func inMachine(t testing.TB, command string) string {
	t.Helper()
	out, err := node.Run(t.Context(), command)
	must(t, err)
	return out
}

// now is the time by the clock of the machine.
func now(t testing.TB) time.Time {
	t.Helper()
	got, err := node.Now(t.Context())
	must(t, err)
	return got
}

// create creates pods in a namespace of the test's own, and removes all pods there when the test ends.
func create(t testing.TB, namespace string, pods ...*v1.Pod) []*v1.Pod {
	t.Helper()
	client := node.Client().CoreV1()
	_, err := client.Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{})
	must(t, existing(err))
	must(t, kit.Poll(t.Context(), limit(), func(ctx context.Context) error {
		_, err := client.ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}))
	var created []*v1.Pod
	for _, pod := range pods {
		pod, err := client.Pods(namespace).Create(t.Context(), kit.Bound(pod), metav1.CreateOptions{})
		must(t, err)
		created = append(created, pod)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, pod := range created {
			err := client.Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
			if err != nil {
				t.Error(err)
			}
		}
		// The test may be run again.
		if err := kit.Poll(ctx, limit(), func(ctx context.Context) error { return noPods(ctx, namespace) }); err != nil {
			t.Error(err)
		}
	})
	return created
}

// existing is err, or nil if the object exists already: a test that is run again finds what it has made before.
func existing(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// noPods is nil if the namespace has no pods.
func noPods(ctx context.Context, namespace string) error {
	list, err := node.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err == nil && len(list.Items) > 0 {
		err = fmt.Errorf("%d pods are left in %s, one is %s", len(list.Items), namespace, kit.Describe(&list.Items[0]))
	}
	return err
}

// limit is how long a pod may take to start or to end.
func limit() time.Duration { return 30 * time.Second * node.Factor() }

func waitPod(t testing.TB, pod *v1.Pod, check func(*v1.Pod) error) *v1.Pod {
	t.Helper()
	got, err := kit.WaitPod(t.Context(), node.Client(), pod, limit(), check)
	must(t, err)
	return got
}
