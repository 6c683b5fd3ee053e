package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName and Kind name the configuration.
const (
	GroupName = "nodepressure.plimsoll.dev"
	Kind      = "NodePressureConfiguration"
)

var (
	// SchemeGroupVersion is the group and version of this package.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
	// SchemeBuilder registers the types and their defaults.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme adds the types to a scheme, for programs that handle the configuration as an API object.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &NodePressureConfiguration{})
	scheme.AddTypeDefaultingFunc(&NodePressureConfiguration{}, func(o any) { SetDefaults(o.(*NodePressureConfiguration)) })
	return nil
}
