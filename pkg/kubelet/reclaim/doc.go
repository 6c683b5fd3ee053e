// Package reclaim is the only part that removes images, and the one that frees room on the node's file systems before
// pods have to go. It collects images from time to time, by age and when their file system fills up, and it frees what
// eviction asks for. Both take turns, so that they never work from two views of the node.
//
// What it decides is in package plan. Everything that it knows of images is in one table: when each was first seen, and
// when it was last in use. In use is an image
//
//   - that a container has, also one that has ended, also as a volume;
//   - that an active pod names, so that what a pod that is starting has pulled is there when its container is made;
//   - that is being pulled.
//
// When one of these cannot be told, nothing is removed.
//
// # Dead containers
//
// Containers that have ended are removed one by one through the runtime manager's DeleteContainer, which does all that
// its own collection does for each: the post-stop hook of the resource managers, the log with its rotated files, the
// link of the log shippers, the container. The collection as a whole cannot be stopped when there is room enough, so
// that it is only the last resort: it also removes sandboxes, containers in an unknown state and log directories
// without a pod.
package reclaim
