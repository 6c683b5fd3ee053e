// Package kubelet builds the agent from settings and clients, starts it and stops it. It has no behaviour of its own:
// it translates settings into arguments of constructors and connects parts.
//
// New builds the parts in the order of build.go; each step uses the parts of earlier steps. Run starts the components
// of components.go in order and stops them in reverse; a component that ends with an error stops the agent with that
// error.
//
// docs/architecture.md has the flow of a pod, the flow of pressure, and the list of packages.
package kubelet
