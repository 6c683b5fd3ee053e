// Package v1alpha1 has the Go types of the API group node.katalyst.kubewharf.io, version v1alpha1, as far as the agent
// publishes them: the CustomNodeResource. They encode to the JSON of Katalyst's types of the same names
// (github.com/kubewharf/katalyst-api, v0.5.15), which a test compares. The names of Go fields are part of the format as
// well: reporter plugins name the fields of spec and status by them.
package v1alpha1
