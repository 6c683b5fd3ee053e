//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	nodev1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

var customNodeResources = nodev1alpha1.GroupVersionKind.GroupVersion().WithResource("customnoderesources")

// reporterUser returns a client of the kind CustomNodeResource: that of the administrator, or one of a user as whom the
// administrator acts, so that nodes without a kubelet need no certificates.
func (s *space) reporterUser(user string, groups ...string) dynamic.ResourceInterface {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", node.Layout().AdminConfig())
	s.must(err)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	}
	config.QPS = -1 // no limit
	client, err := dynamic.NewForConfig(config)
	s.must(err)
	return client.Resource(customNodeResources)
}

func (s *space) reporterNode(name string) dynamic.ResourceInterface {
	return s.reporterUser("system:node:"+name, "system:nodes")
}

// reporterWrite is a write of a CustomNodeResource: a merge patch, or server-side apply.
type reporterWrite struct {
	name, body, subresource string
	apply                   bool
}

func (w reporterWrite) send(ctx context.Context, client dynamic.ResourceInterface) error {
	kind, body := types.MergePatchType, w.body
	options := metav1.PatchOptions{FieldManager: "plimsoll-reporter"}
	if w.apply {
		force := true
		kind, options.Force = types.ApplyPatchType, &force
		body = fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": %q}, %s`,
			nodev1alpha1.GroupVersionKind.GroupVersion(), nodev1alpha1.GroupVersionKind.Kind, w.name,
			strings.TrimPrefix(w.body, "{"))
	}
	var subresources []string
	if w.subresource != "" {
		subresources = append(subresources, w.subresource)
	}
	_, err := client.Patch(ctx, w.name, kind, []byte(body), options, subresources...)
	return err
}

// TestReporterRights verifies what nodes may write of CustomNodeResources: each its own object, and of that nothing
// that belongs to Katalyst's controllers, or that keeps the object from being deleted.
func TestReporterRights(t *testing.T) {
	s := newSpace(t)
	own, other := s.otherNode(), s.name+"-other"
	ownNode, err := s.client.CoreV1().Nodes().Get(s.ctx, own, metav1.GetOptions{})
	s.must(err)
	admin := s.reporterUser("")
	client := s.reporterNode(own)
	t.Cleanup(func() {
		for _, name := range []string{own, other} {
			err := admin.Delete(context.Background(), name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	const (
		taints     = `{"spec": {"taints": [{"key": "a", "effect": "NoSchedule", "qosLevel": "reclaimed_cores"}]}}`
		status     = `{"status": {"topologyPolicy": "None"}}`
		owners     = `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": %q, "name": %q, "uid": %q%s}]}}`
		agentReady = `{"status": {"conditions": [{"type": "AgentReady", "status": "True"}]}}`
		ready      = `{"status": {"conditions": [{"type": "AgentReady", "status": "False"}]}}`
	)
	// The garbage collector deletes objects whose owner does not exist.
	owner := func(kind, name, more string) string { return fmt.Sprintf(owners, kind, name, ownNode.UID, more) }
	if err := refusedByPolicy(reporterWrite{name: other, body: taints, apply: true}.send(s.ctx, client)); err != nil {
		t.Errorf("the creation of another node's object: %v", err)
	}
	s.must(reporterWrite{name: other, body: taints, apply: true}.send(s.ctx, s.reporterNode(other)))
	s.must(reporterWrite{name: own, body: taints, apply: true}.send(s.ctx, client))
	s.must(reporterWrite{name: own, body: status, subresource: "status", apply: true}.send(s.ctx, client))
	s.must(reporterWrite{name: own, body: owner("Node", own, "")}.send(s.ctx, client))
	s.must(reporterWrite{name: own, body: ready, subresource: "status"}.send(s.ctx, admin))
	s.must(reporterWrite{name: own, body: status, subresource: "status"}.send(s.ctx, client))
	for what, w := range map[string]reporterWrite{
		"spec of another object":            {name: other, body: taints},
		"spec of another object, applied":   {name: other, body: taints, apply: true},
		"status of another object":          {name: other, body: status, subresource: "status"},
		"status of another object, applied": {name: other, body: status, subresource: "status", apply: true},
		"a condition":                       {name: own, body: agentReady, subresource: "status"},
		"no conditions":                     {name: own, body: `{"status": {"conditions": null}}`, subresource: "status"},
		"a finalizer":                       {name: own, body: `{"metadata": {"finalizers": ["plimsoll.example/test"]}}`},
		"another owner":                     {name: own, body: owner("Node", other, "")},
		"an owner that is no Node":          {name: own, body: owner("Pod", own, "")},
		"an owner that is the controller":   {name: own, body: owner("Node", own, `, "controller": true`)},
		"an owner that cannot be deleted": {
			name: own, body: owner("Node", own, `, "blockOwnerDeletion": true`),
		},
	} {
		if err := refusedByPolicy(w.send(s.ctx, client)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := client.Delete(s.ctx, own, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node deletes its object: %v", err)
	}
	noNode := s.reporterUser(own, "system:nodes")
	if err := refusedByPolicy(reporterWrite{name: own, body: taints}.send(s.ctx, noNode)); err != nil {
		t.Errorf("a user of the group that is not named as a node: %v", err)
	}
	_, err = client.Get(s.ctx, own, metav1.GetOptions{})
	s.must(err)
}
