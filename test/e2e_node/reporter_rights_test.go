//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	nodev1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/kit"
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

// manifestFile is the path of a file in the directory config.
func manifestFile(name string) string { return filepath.Join(node.Layout().Root, "config", name) }

// withoutReporterManifest deletes the objects of a file in the directory config, until the test ends at most.
func (s *space) withoutReporterManifest(name string) {
	s.t.Helper()
	s.t.Cleanup(func() {
		restore := *s
		restore.ctx = context.Background()
		restore.kubectl("apply", "-f", manifestFile(name))
	})
	s.kubectl("delete", "--wait", "-f", manifestFile(name))
}

// withReporterManifests creates what reporter plugins need in the cluster, as far as it is not there.
func (s *space) withReporterManifests() {
	s.t.Helper()
	for _, name := range []string{"crd/customnoderesources.yaml", "rbac/reporter.yaml"} {
		s.kubectl("apply", "-f", manifestFile(name))
	}
	s.kubectl("wait", "--for=condition=Established", "--timeout=60s",
		"crd/customnoderesources.node.katalyst.kubewharf.io")
}

// withoutKindAndRights begins without the kind CustomNodeResource, as the kubelet has. The node is Ready, publishes
// what is reported of the Node, and evicts as ever. Neither does it need the right to write the object, or the policy.
func (s *space) withoutKindAndRights() {
	s.notPublished("could not find the requested resource")
	s.readyAnd(calm)
	evicted := s.pressure()
	s.remove(evicted)
	s.noPressure()
	s.withReporterManifests()
	s.withoutReporterManifest("rbac/reporter.yaml")
	s.publishAnew()
	s.notPublished("forbidden")
	s.readyAnd(levelReported)
}

// notPublished waits until the last write of the CustomNodeResource has failed with an error with that text.
func (s *space) notPublished(text string) {
	s.t.Helper()
	s.eventually(reporterTimeout, func(context.Context) error {
		for _, object := range s.pluginPage().Objects {
			if object.Kind != nodev1alpha1.GroupVersionKind.Kind {
				continue
			}
			if object.Writes > 0 || !strings.Contains(object.LastError, text) {
				return fmt.Errorf("want an error with %q: %+v", text, object)
			}
			return nil
		}
		return errors.New("the page has no such object")
	})
}

// readyAnd waits until the Node is as check says. It must be Ready.
func (s *space) readyAnd(check func(*v1.Node) error) {
	s.t.Helper()
	s.eventually(slowTimeout, func(ctx context.Context) error {
		n, err := kit.Node(ctx, s.client)
		if err == nil && kit.NodeCondition(n, v1.NodeReady).Status != v1.ConditionTrue {
			err = kit.Hopeless(errors.New("the node is not Ready"))
		}
		if err == nil {
			err = check(n)
		}
		return err
	})
}

// publishAnew has the CustomNodeResource published no longer, and again: the kubelet then does not wait for the end of
// its back-off.
func (s *space) publishAnew() {
	s.t.Helper()
	all := reporterSettings(anyTime, s.t)
	for _, settings := range []string{strings.Replace(all, "CustomNodeResource, ", "", 1), all} {
		s.writePressureConfig(settings)
		s.inForce(settings)
	}
}
