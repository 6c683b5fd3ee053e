// +k8s:deepcopy-gen=package

// Package v1alpha1 is the configuration of what is our own in this kubelet: how it finds out that the node runs out of
// something, and what it does then. Everything that stock has too stays in the KubeletConfiguration.
//
//	types       the file's fields, each with its range and its default
//	values      what fields with a fixed set of values may be, the names of signals among them
//	defaults    what holds for fields that are absent
//	validate    what is refused
//	register    group, version and kind
//
// "make generate" writes zz_generated.deepcopy.go and config/pressure.schema.json from these types.
//
// The comments of the fields are the source of config/pressure.schema.json; tests compare them with what defaulting and
// validation do. docs/pressure.md explains what the settings are for.
package v1alpha1
