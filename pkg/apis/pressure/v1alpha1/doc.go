// +k8s:deepcopy-gen=package

// Package v1alpha1 has the configuration of node pressure features that stock does not have: how this kubelet detects
// that the node runs out of a resource, and what it does then. Fields of stock stay in the KubeletConfiguration.
//
//	types       the fields of the file, each with its range and its default
//	values      enumerated values, including the names of signals
//	defaults    defaults of absent fields
//	validate    validation
//	plugins     validation of the settings of plugins, those of eviction plugins included
//	reporter    validation of the settings of reporter plugins
//	kubelet     validation of settings that depend on those of the kubelet
//	register    group, version and kind
//
// "make generate" writes zz_generated.deepcopy.go and config/pressure.schema.json from these types.
//
// The comments of the fields are the source of config/pressure.schema.json; tests compare them with defaulting and
// validation. docs/pressure.md explains the settings.
package v1alpha1
