// Package containerspec works out what a container is started with: environment, mounts, devices, hosts file, host
// name, DNS, cgroup parent, user namespace. It answers the container runtime manager (Helper is its RuntimeHelper) and
// starts nothing.
//
// One file per concern. The way of one container through the package:
//
//	options.go      GenerateRunContainerOptions: what the resource managers allocated, then in this order
//	devices.go        raw block volumes
//	env*.go           services, envFrom, env; later entries see earlier ones
//	mounts.go         volume mounts; needs the environment for subPathExpr
//	hosts.go          the managed /etc/hosts, mounted unless the container brings its own
//
// Per pod rather than per container: hostname.go, helper.go (DNS, cgroup parent, groups, dynamic resources), userns.go,
// dirs.go.
//
// Error texts are part of the interface: the runtime manager shows them to users as the message of
// CreateContainerConfigError and of the Failed event, so they equal stock's word for word and are not wrapped further
// here.
package containerspec
