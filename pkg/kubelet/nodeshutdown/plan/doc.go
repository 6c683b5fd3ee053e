// Package plan decides how the pods of a node that goes down are stopped: in which groups, with how much time, and
// which of them start again with the node. It is pure: pods and periods in, groups out. Package nodeshutdown carries it
// out.
package plan
