// Package reclaimedresource is the rule of the eviction plugin reclaimed-resource-pressure-eviction-plugin: when
// reclaimed pods together request more than a ratio of what is allocatable of a reclaimed resource, its hard threshold
// is met, and the pod that requests most of the resource is evicted first.
//
// Reclaimed resources are what other pods leave: they shrink under the pods that use them. Allocatable are those of
// Katalyst's CustomNodeResource where it has them, else the extended resources of the Node. A resource that neither has
// is unknown: nothing follows from it. One of which nothing is left is known.
package reclaimedresource
