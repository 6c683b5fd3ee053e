// Package demo puts a node under memory pressure and prints what happens, step by step. Each statement is checked; the
// first that does not hold ends the demonstration with an error.
package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	namespace = "demo"
	// podTimeout is how long a pod may take to start or to end.
	podTimeout = 2 * time.Minute
	// pressureTimeout covers the growth of the hog and the kubelet's monitoring period; clearTimeout the transition period
	// as well.
	pressureTimeout = 4 * time.Minute
	clearTimeout    = 4 * time.Minute
	reportInterval  = 5 * time.Second
)

// Demo is one run against a cluster.
type Demo struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface
	out     io.Writer
	began   time.Time
	step    int
}

// New prepares a run that prints to out.
func New(c *cluster.Cluster, out io.Writer) *Demo {
	return &Demo{cluster: c, client: c.Client(), out: out, began: time.Now()}
}

// Run executes all steps. What it created is deleted at the end, also after an error.
func (d *Demo) Run(ctx context.Context) error {
	if err := d.makeNamespace(ctx); err != nil {
		return err
	}
	defer d.deleteNamespace(context.WithoutCancel(ctx))
	if err := d.describeNode(ctx); err != nil {
		return err
	}
	neighbours, err := d.startNeighbours(ctx)
	if err != nil {
		return err
	}
	if err := d.growHog(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return d.checkNeighbours(ctx, neighbours) },
		d.checkPressure,
		d.checkRejection,
		d.checkClearing,
		func(ctx context.Context) error { return d.checkNeighbours(ctx, neighbours) },
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.title("That was all: the hog was evicted, nobody else was touched, and the node recovered.")
	return nil
}

func (d *Demo) makeNamespace(ctx context.Context) error {
	d.deleteNamespace(ctx)
	_, err := d.client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make namespace: %w", err)
	}
	// Pods need the service account, which a controller creates.
	return kit.Poll(ctx, podTimeout, func(ctx context.Context) error {
		_, err := d.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// deleteNamespace deletes the namespace and waits until it is gone, if possible.
func (d *Demo) deleteNamespace(ctx context.Context) {
	namespaces := d.client.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return
	}
	// A namespace that is left makes the next run fail.
	_ = kit.Poll(ctx, podTimeout, func(ctx context.Context) error {
		_, err := namespaces.Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("namespace is still there: %w", err)
	})
}

func (d *Demo) create(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	created, err := d.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	return created, nil
}

// title prints the title of a step, say a line of it.
func (d *Demo) title(format string, args ...any) {
	d.step++
	fmt.Fprintf(d.out, "\n%d. %s\n", d.step, fmt.Sprintf(format, args...))
}

func (d *Demo) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(d.out, "   %5.1fs  %s\n", time.Since(d.began).Seconds(), strings.TrimSpace(text))
}
