// Package sources reads what the rules of the eviction plugins decide on: files of the kernel about the node and about
// the cgroups of pods, which stay open between readings, and the CustomNodeResource of the node.
//
// Parsers take nothing from a line that is not as the kernel writes it. What cannot be read is absent, never zero, and
// the error names the file.
package sources
