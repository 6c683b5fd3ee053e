// Package plugins has the eviction plugins in the agent: it reads the facts for their rules, keeps the states of these,
// and answers the calls of the driver. The rules are in the packages below it, each pure; memory-growth is a package of
// its own.
//
//	plugin  a plugin that answers by a rule
//	set     all plugins, their settings and their sources
//	rules   the facts and the settings of each rule
package plugins
