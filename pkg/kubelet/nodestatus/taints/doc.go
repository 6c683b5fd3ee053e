// Package taints decides which taints of the Node are changed for the conditions of eviction plugins.
//
// The agent owns a taint only if its key and effect are in the record of the taints that it has added. A taint with the
// prefix of plugin conditions that is not recorded was added by somebody else: it is neither changed nor removed, even
// if a plugin asks for the same one (E17). The caller stores the record before it changes the Node, so that an agent
// that is killed in between removes its taint after the restart.
package taints
