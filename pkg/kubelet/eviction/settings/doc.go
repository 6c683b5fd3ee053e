// Package settings turns both configuration files into the rules that package policy decides by.
//
//	thresholds  thresholds of the KubeletConfiguration
//	options     settings of the NodePressureConfiguration
//	rules       both together
//
// The eviction manager and kubectl pressure use the same code, so that a plan has the rules that a node would have.
package settings
