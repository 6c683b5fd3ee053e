package containerspec

import (
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/kubernetes/pkg/kubelet/envvars"
)

// apiService is the service of the API server, in the default namespace. It is visible to every pod.
const apiService = "kubernetes"

// serviceVariables returns the variables of the services that are visible to pods of the namespace. Services without an
// IP have none. If two services have variables of the same name, the service whose name sorts last sets the value.
func serviceVariables(all Services, namespace string, links bool) (map[string]string, error) {
	list, err := all.List(labels.Everything())
	if err != nil {
		return nil, errors.New("failed to list services when setting up env vars")
	}
	visible := visibleServices(list, namespace, links)
	sorted := make([]*v1.Service, 0, len(visible))
	for _, name := range slices.Sorted(maps.Keys(visible)) {
		sorted = append(sorted, visible[name])
	}
	variables := map[string]string{}
	for _, variable := range envvars.FromServices(sorted) {
		variables[variable.Name] = variable.Value
	}
	return variables, nil
}

// visibleServices selects, by name, the services of the namespace if links are enabled, and always the API server's. A
// service of the same name in the pod's namespace hides the API server's.
func visibleServices(list []*v1.Service, namespace string, links bool) map[string]*v1.Service {
	visible := map[string]*v1.Service{}
	for _, service := range list {
		if !v1helper.IsServiceIPSet(service) {
			continue
		}
		isAPI := service.Namespace == v1.NamespaceDefault && service.Name == apiService
		_, hidden := visible[service.Name]
		isLink := !isAPI && links && service.Namespace == namespace
		if isLink || isAPI && !hidden {
			visible[service.Name] = service
		}
	}
	return visible
}
