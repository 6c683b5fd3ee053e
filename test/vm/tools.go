package vm

import (
	"fmt"
	"path/filepath"
)

// WriteTools writes two programs that work from any network namespace, kubectl and a shell in the machine called node,
// and returns their folder. It is removed with the machine.
func (n *Node) WriteTools() (string, error) {
	layout := n.config.Layout
	dir := filepath.Join(layout.State, "bin")
	enter := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=%q -- ", n.network.file())
	for name, script := range map[string]string{
		"kubectl": fmt.Sprintf("%s%q --kubeconfig=%q \"$@\"\n", enter, layout.Program("kubectl"), layout.AdminConfig()),
		"node": fmt.Sprintf("%sssh -i %q -o UserKnownHostsFile=%q -o LogLevel=ERROR root@%s \"$@\"\n", enter,
			userKeyFile(layout), knownHostsFile(layout), nodeAddress),
	} {
		if err := (file{[]byte(script), 0o755}).write(filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return dir, nil
}
