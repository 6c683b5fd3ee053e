// Package rssoveruse is the rule of the eviction plugin rss-overuse-eviction-plugin: a pod whose resident set is
// greater than a ratio of the memory that it requests is a soft candidate. Shared and reclaimed pods only, and none
// with a container that requests no memory: such a pod has said nothing about what it needs.
//
// The resident set is the anonymous memory of the pod's cgroup, which is rssBytes of the summary API. A pod overrides
// the ratio by rss_overuse_threshold in its annotation katalyst.kubewharf.io/memory_enhancement, as with Katalyst.
package rssoveruse
