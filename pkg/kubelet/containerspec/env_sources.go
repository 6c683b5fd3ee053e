package containerspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// objectCache reads each ConfigMap and Secret once per container, so that all variables of a container are from the
// same version of it.
type objectCache struct {
	namespace  string
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
	// getConfigMap and getSecret are nil without an API server.
	getConfigMap func(namespace, name string) (*v1.ConfigMap, error)
	getSecret    func(namespace, name string) (*v1.Secret, error)
}

func newObjectCache(cfg Config, namespace string) *objectCache {
	cache := &objectCache{
		namespace:  namespace,
		configMaps: map[string]*v1.ConfigMap{},
		secrets:    map[string]*v1.Secret{},
	}
	if cfg.ConfigMaps != nil {
		cache.getConfigMap = cfg.ConfigMaps.GetConfigMap
	}
	if cfg.Secrets != nil {
		cache.getSecret = cfg.Secrets.GetSecret
	}
	return cache
}

// configMap returns the ConfigMap, or nil if it is optional and does not exist.
func (c *objectCache) configMap(name string, optional *bool) (*v1.ConfigMap, error) {
	if c.getConfigMap == nil {
		return nil, fmt.Errorf("couldn't get configMap %v/%v, no kubeClient defined", c.namespace, name)
	}
	return cached(c.configMaps, name, isTrue(optional), func() (*v1.ConfigMap, error) {
		return c.getConfigMap(c.namespace, name)
	})
}

// secret returns the Secret, or nil if it is optional and does not exist.
func (c *objectCache) secret(name string, optional *bool) (*v1.Secret, error) {
	if c.getSecret == nil {
		return nil, fmt.Errorf("couldn't get secret %v/%v, no kubeClient defined", c.namespace, name)
	}
	return cached(c.secrets, name, isTrue(optional), func() (*v1.Secret, error) { return c.getSecret(c.namespace, name) })
}

func cached[T any](known map[string]*T, name string, optional bool, get func() (*T, error)) (*T, error) {
	if object, ok := known[name]; ok {
		return object, nil
	}
	object, err := get()
	if optional && apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known[name] = object
	return object, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// fromSources returns the variables of envFrom: all keys of each source; later sources override earlier ones. Any key
// may be a name (KEP-4369).
func (b *envBuilder) fromSources() (map[string]string, error) {
	own := map[string]string{}
	for _, source := range b.request.container.EnvFrom {
		switch {
		case source.ConfigMapRef != nil:
			object, err := b.objects.configMap(source.ConfigMapRef.Name, source.ConfigMapRef.Optional)
			if err != nil {
				return nil, err
			}
			if object != nil {
				addPrefixed(own, source.Prefix, object.Data)
			}
		case source.SecretRef != nil:
			object, err := b.objects.secret(source.SecretRef.Name, source.SecretRef.Optional)
			if err != nil {
				return nil, err
			}
			if object != nil {
				addPrefixed(own, source.Prefix, object.Data)
			}
		}
	}
	return own, nil
}

func addPrefixed[V string | []byte](own map[string]string, prefix string, data map[string]V) {
	for key, value := range data {
		own[prefix+key] = string(value)
	}
}
