package killer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// callTimeout limits one call.
const callTimeout = 10 * time.Second

// call asks the API server once to evict the pod. It returns nil if the API server has accepted that. The client does
// not repeat the call by itself: it would sleep as long as Retry-After says, up to ten times, without a check.
func (a *attempt) call(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pod := a.request.Pod
	options := metav1.DeleteOptions{
		GracePeriodSeconds: &a.request.GracePeriodSeconds, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	}
	var request *rest.Request
	if a.key.killer == snapshot.DeleteAPI {
		request = a.config.Client.CoreV1().RESTClient().Delete().Body(&options)
	} else {
		request = a.config.Client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").SubResource("eviction").
			Body(&policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &options,
			})
	}
	return request.Namespace(pod.Namespace).Resource("pods").Name(pod.Name).MaxRetries(0).Do(ctx).Error()
}

// replaced reports whether the API server has no pod of this UID any more, but another one of its name or none. A
// conflict may have other reasons.
func (a *attempt) replaced(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var pod v1.Pod
	err := a.config.Client.CoreV1().RESTClient().Get().Namespace(a.request.Pod.Namespace).Resource("pods").
		Name(a.request.Pod.Name).MaxRetries(0).Do(ctx).Into(&pod)
	return apierrors.IsNotFound(err) || err == nil && pod.UID != a.key.uid
}

// isFinal reports whether the API server would answer a further call with the same error. Credentials may be renewed.
func isFinal(err error) bool {
	code := codeOf(err)
	switch code {
	case http.StatusTooManyRequests, http.StatusConflict, http.StatusUnauthorized, http.StatusRequestTimeout:
		return false
	}
	return code >= 400 && code < 500
}

// mayHaveEffect reports whether a call that ended with the error may have evicted the pod all the same: it has no
// answer, or one with an error of the server.
func mayHaveEffect(err error) bool {
	code := codeOf(err)
	return code >= 500 || (code == 0 && !utilnet.IsConnectionRefused(err))
}

// codeOf returns the code of an answer of the API server, zero for another error.
func codeOf(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// pause returns the time to the next call.
func pause(err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return retryAfter
}

// described adds the causes that the API server names to the text of an error: they have the name of the disruption
// budget.
func described(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Message != "" {
			err = fmt.Errorf("%w %s", err, cause.Message)
		}
	}
	return err
}
