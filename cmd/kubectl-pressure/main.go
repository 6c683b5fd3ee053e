// kubectl-pressure shows why pods were evicted and how close nodes are to their eviction thresholds. It is a plugin of
// kubectl: "kubectl pressure".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/plimsoll-project/plimsoll/cmd/kubectl-pressure/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Run(ctx, os.Args[1:], app.Streams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}
