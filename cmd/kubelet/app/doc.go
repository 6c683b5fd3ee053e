// Package app is the kubelet command: it reads flags and files into validated settings, creates the dependencies of the
// agent from them, and runs the agent until a signal ends it.
//
// Precedence is that of stock: built-in defaults, then the --config file, then the files in --config-dir in the order
// of their paths, then flags. Invalid values are reported before anything is started, with the field, the flag if there
// is one, and the value. This package does not end the process: Program.Run returns an exit code.
package app
