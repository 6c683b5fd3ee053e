package containerspec

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// envBuilder finds the values of one container's variables.
type envBuilder struct {
	helper  *Helper
	request request
	objects *objectCache
	// withLimits caches the pod with the limits that the downward API reports.
	withLimits *podWithLimits
}

// value returns the value of one entry of env. set is false if the entry refers to something optional that is missing.
// If an entry has both a value and a source, which the API rejects, the value is used.
func (b *envBuilder) value(
	ctx context.Context, entry v1.EnvVar, lookup func(string) string,
) (value string, set bool, err error) {
	if entry.Value != "" {
		return expansion.Expand(entry.Value, lookup), true, nil
	}
	source := entry.ValueFrom
	switch {
	case source == nil:
		return "", true, nil
	case source.FieldRef != nil:
		value, err = b.field(ctx, source.FieldRef)
		return value, true, err
	case source.ResourceFieldRef != nil:
		value, err = b.resource(ctx, source.ResourceFieldRef)
		return value, true, err
	case source.ConfigMapKeyRef != nil:
		return b.configMapKey(source.ConfigMapKeyRef)
	case source.SecretKeyRef != nil:
		return b.secretKey(source.SecretKeyRef)
	case source.FileKeyRef != nil && b.helper.cfg.Features.EnvFiles:
		return b.fileKey(ctx, source.FileKeyRef)
	}
	return "", true, nil
}

func (b *envBuilder) configMapKey(ref *v1.ConfigMapKeySelector) (string, bool, error) {
	object, err := b.objects.configMap(ref.Name, ref.Optional)
	if err != nil || object == nil {
		return "", false, err
	}
	value, found := object.Data[ref.Key]
	if !found && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, b.objects.namespace, ref.Name)
	}
	return value, found, nil
}

func (b *envBuilder) secretKey(ref *v1.SecretKeySelector) (string, bool, error) {
	object, err := b.objects.secret(ref.Name, ref.Optional)
	if err != nil || object == nil {
		return "", false, err
	}
	value, found := object.Data[ref.Key]
	if !found && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, b.objects.namespace, ref.Name)
	}
	return string(value), found, nil
}
