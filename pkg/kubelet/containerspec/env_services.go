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

// apiService is the service of the API server, in the default namespace: every pod sees it.
const apiService = "kubernetes"

// serviceVariables returns the variables of the services that a pod of the namespace sees. Services without an IP have
// none. Where the variables of two services have one name, the service whose own name sorts last gives the value.
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

// visibleServices selects, by name, the services of the namespace if the pod wants links, and always the API server's.
// A service of the same name in the pod's own namespace hides the API server's.
func visibleServices(list []*v1.Service, namespace string, links bool) map[string]*v1.Service {
	visible := map[string]*v1.Service{}
	for _, service := range list {
		if !v1helper.IsServiceIPSet(service) {
			continue
		}
		isAPI := service.Namespace == v1.NamespaceDefault && service.Name == apiService
		_, taken := visible[service.Name]
		isLink := !isAPI && links && service.Namespace == namespace
		if isLink || isAPI && !taken {
			visible[service.Name] = service
		}
	}
	return visible
}
