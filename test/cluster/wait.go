package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

const (
	pollInterval = 100 * time.Millisecond
	// partTimeout is how long a part may take until it serves. A cold start on
	// a busy machine takes a tenth of it.
	partTimeout = 3 * time.Minute
	// logTail is how many lines of a log an error quotes.
	logTail = 15
)

// FactorVariable names the environment variable with the number by which time-outs are multiplied, for machines that
// are slow because they are emulated. Without it they are as they are.
const FactorVariable = "PLIMSOLL_TIME_FACTOR"

// TimeFactor returns the number by which time-outs are multiplied. It panics if the variable does not hold one.
var TimeFactor = sync.OnceValue(func() time.Duration {
	text := os.Getenv(FactorVariable)
	if text == "" {
		return 1
	}
	factor, err := strconv.Atoi(text)
	if err != nil || factor < 1 {
		panic(fmt.Sprintf("%s is %q, want a number from 1 on", FactorVariable, text))
	}
	return time.Duration(factor)
})

// startAndWait starts a process and waits until ready returns nil. It fails at once if the process ends.
func (c *Cluster) startAndWait(ctx context.Context, command host.Command, ready func(context.Context) error) error {
	proc, err := c.startProcess(command)
	if err != nil {
		return err
	}
	return c.waitFor(ctx, command.Name, proc, ready)
}

func (c *Cluster) waitFor(
	ctx context.Context, name string, proc host.Process, ready func(context.Context) error,
) error {
	var last error
	limit := partTimeout * TimeFactor()
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(ctx context.Context) (bool, error) {
		if last = ready(ctx); last == nil {
			return true, nil
		}
		if !proc.Alive() {
			return false, errors.New("it ended")
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w; end of its log:\n%s", name, errors.Join(err, last), c.tail(name))
	}
	return nil
}

func (c *Cluster) apiServerReady(ctx context.Context) error {
	return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// waitForNode waits until the node is Ready according to the kubelet that was started at since.
func (c *Cluster) waitForNode(ctx context.Context, since time.Time) error {
	proc, err := c.config.Layout.processes().Find(processKubelet)
	if err != nil {
		return err
	}
	if c.config.Standalone {
		return c.waitFor(ctx, processKubelet, proc, kubeletHealthy)
	}
	return c.waitFor(ctx, processKubelet, proc, func(ctx context.Context) error {
		return errors.Join(kubeletHealthy(ctx), NodeReady(ctx, c.client, since))
	})
}

func kubeletHealthy(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://%s:%d/healthz", loopback, portKubeletHealth), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("kubelet health: %s", response.Status)
	}
	return nil
}

// NodeReady is nil if the Ready condition of the node is True and was confirmed after since, and the default namespace
// has its service account.
func NodeReady(ctx context.Context, client kubernetes.Interface, since time.Time) error {
	node, err := client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type != v1.NodeReady {
			continue
		}
		if condition.Status != v1.ConditionTrue {
			return fmt.Errorf("node is not Ready: %s: %s", condition.Reason, condition.Message)
		}
		// Times in the API have whole seconds.
		if condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
			return errors.New("node status is from before this kubelet")
		}
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	return errors.New("node has no Ready condition yet")
}

// tail returns the end of the log of a process.
func (c *Cluster) tail(name string) string {
	data, err := os.ReadFile(c.config.Layout.processes().LogFile(name))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}
