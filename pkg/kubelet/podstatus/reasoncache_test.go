package podstatus_test

import (
	"errors"
	"fmt"
	"testing"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

func result(action kubecontainer.SyncAction, target any, err error) kubecontainer.PodSyncResult {
	r := kubecontainer.NewSyncResult(action, target)
	if err != nil {
		r.Fail(err, "message")
	}
	var all kubecontainer.PodSyncResult
	all.AddSyncResult(r)
	return all
}

func TestReasonCache(t *testing.T) {
	c := podstatus.NewReasonCache()
	cause := errors.New("CrashLoopBackOff")
	c.Update("uid", result(kubecontainer.KillContainer, "a", cause))
	c.Update("uid", result(kubecontainer.StartContainer, 7, cause))
	if _, ok := c.Get("uid", "a"); ok {
		t.Error("the cache has a reason other than a failed start of a container")
	}
	c.Update("uid", result(kubecontainer.StartContainer, "a", cause))
	if r, ok := c.Get("uid", "a"); !ok || !errors.Is(r.Err, cause) || r.Message != "message" {
		t.Errorf("got %+v, %t", r, ok)
	}
	if _, ok := c.Get("other", "a"); ok {
		t.Error("the reason is returned for another pod")
	}
	c.Update("uid", result(kubecontainer.StartContainer, "a", nil))
	if _, ok := c.Get("uid", "a"); ok {
		t.Error("a successful start did not clear the reason")
	}
	c.Add("uid", "a", cause, "")
	c.Remove("uid", "a")
	if _, ok := c.Get("uid", "a"); ok {
		t.Error("a removed reason is still there")
	}
}

func TestReasonCacheIsBounded(t *testing.T) {
	c := podstatus.NewReasonCache()
	for i := range 1001 {
		c.Add("uid", fmt.Sprint(i), errors.New("x"), "")
	}
	if _, ok := c.Get("uid", "0"); ok {
		t.Error("the oldest entry is still there")
	}
	if _, ok := c.Get("uid", "1"); !ok {
		t.Error("the second oldest entry is gone")
	}
}
