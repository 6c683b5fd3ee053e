// Package plan decides how the pods of a node are stopped before the machine shuts down: in which groups, with which
// grace periods, and which pods restart with the node. It consists of pure functions; package nodeshutdown executes the
// decisions.
package plan
