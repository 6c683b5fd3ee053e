// Package containerspec generates the options with which a container is started: environment, mounts, devices, hosts
// file, host name, DNS, cgroup parent, user namespace. Helper is the RuntimeHelper of the container runtime manager.
//
// The options of one container are generated in this order:
//
//	options.go      GenerateRunContainerOptions: what the resource managers allocated, then in this order
//	devices.go        raw block volumes
//	env*.go           services, envFrom, env; later entries can refer to earlier ones
//	mounts.go         volume mounts; needs the environment for subPathExpr
//	hosts.go          the managed /etc/hosts, mounted unless the container mounts its own
//
// Per pod rather than per container: hostname.go, helper.go (DNS, cgroup parent, groups, dynamic resources,
// directories), userns.go.
//
// Error texts are part of the interface: the runtime manager reports them as the message of CreateContainerConfigError
// and of the event Failed, so they equal stock's and are not wrapped here.
package containerspec
