package app

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

const description = `
kubelet (Plimsoll) is the node agent of Kubernetes: it runs the pods that are bound to its node, keeps
them healthy, tells the API server about them, and decides which of them has to go when the node runs out of something.

Pods come from the API server (--kubeconfig) and, as static pods, from a directory or a URL; without
--kubeconfig the agent runs static pods only. Settings come from --config, --config-dir and flags; flags win.`

func printHelp(w io.Writer, fs *pflag.FlagSet) error {
	_, err := fmt.Fprintf(w, "%s\n\nUsage:\n  kubelet [flags]\n\nFlags:\n%s", strings.TrimSpace(description),
		fs.FlagUsagesWrapped(2))
	return err
}
