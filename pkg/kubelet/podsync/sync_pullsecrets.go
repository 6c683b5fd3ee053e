package podsync

import (
	"context"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// errNoSecrets is the error of pull secrets without an API server.
var errNoSecrets = errors.New("no API server to read secrets from")

// fetchPullSecrets reads the credentials for the pod's images. If some cannot be read, there is an event, and the phase
// continues: the images may be present or public.
type fetchPullSecrets struct {
	secrets SecretManager
	events  events
}

func (fetchPullSecrets) Name() string { return "fetch pull secrets" }

func (s fetchPullSecrets) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	var missing []string
	for _, ref := range p.Pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			// The API accepts empty names (kubernetes/kubernetes#99454).
			continue
		}
		secret, err := s.get(p.Pod.Namespace, ref.Name)
		if err != nil {
			klog.FromContext(ctx).Info("Unable to retrieve pull secret, the image pull may not succeed",
				"pod", klog.KObj(p.Pod), "secret", klog.KRef(p.Pod.Namespace, ref.Name), "err", err)
			missing = append(missing, ref.Name)
			continue
		}
		p.pullSecrets = append(p.pullSecrets, *secret)
	}
	if len(missing) > 0 {
		s.events.warn(ctx, p.Pod, "FailedToRetrieveImagePullSecret",
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
			strings.Join(missing, ", "))
	}
	return nextStep, nil
}

func (s fetchPullSecrets) get(namespace, name string) (*v1.Secret, error) {
	if s.secrets == nil {
		return nil, errNoSecrets
	}
	return s.secrets.GetSecret(namespace, name)
}
