// The kubelet command runs Plimsoll, a drop-in replacement for the Kubernetes node agent. Linux only.
package main

import (
	"context"
	"os"

	_ "k8s.io/component-base/logs/json/register"          // log format json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build information metric

	"github.com/plimsoll-project/plimsoll/cmd/kubelet/app"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// main is the only function that ends the process.
func main() {
	ctx, stop := app.UntilSignal(context.Background(), func() { os.Exit(1) })
	code := app.Program{
		Args:   os.Args[1:],
		Stdout: os.Stdout,
		Stderr: os.Stderr,
		New:    newAgent,
	}.Run(ctx)
	stop()
	os.Exit(code)
}

func newAgent(ctx context.Context, deps kubelet.Dependencies) (app.Agent, error) {
	return kubelet.New(ctx, deps)
}
