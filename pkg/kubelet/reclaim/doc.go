// Package reclaim removes images, and frees space on the node's file systems before pods are evicted. It collects
// images periodically, by age and when their file system fills up, and reclaims what eviction requests. One lock
// excludes the one from the other, so that both never work with two observations of the node.
//
// The decisions are in package plan. The manager records for each image when it was first detected and when it was last
// used. An image is in use if
//
//   - a container has it, as its image or as a volume, also if the container has exited;
//   - an active pod refers to it, so that an image which was pulled for a starting pod is there when its container is
//     created;
//   - it is being pulled.
//
// If one of these cannot be determined, nothing is removed.
//
// # Dead containers
//
// Dead containers are removed one by one through the runtime manager's DeleteContainer, which does for each what
// stock's container garbage collection does: it calls the post-stop hook of the resource managers, removes the log with
// its rotated files and the symlink for log shippers, and removes the container. The garbage collection as a whole
// cannot be stopped once enough is free, so it is only the last resort: it also removes sandboxes, containers in an
// unknown state and log directories without a pod.
package reclaim
