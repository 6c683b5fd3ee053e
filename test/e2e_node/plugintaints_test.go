//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/test/cluster"
)

// taintIdentity is the manifest of the role of the identity for taints, and of the policy that bounds it.
const taintIdentity = "rbac/node-taints.yaml"

// withTaintIdentity applies the role and the policy until the test ends, and then removes what is left of the taints.
// It returns a client with the identity of the node when the policy is in force.
func (s *space) withTaintIdentity() kubernetes.Interface {
	s.t.Helper()
	s.kubectl("apply", "-f", manifestFile(taintIdentity))
	s.t.Cleanup(func() {
		after := *s
		after.ctx = context.Background()
		after.kubectl("delete", "--ignore-not-found", "-f", manifestFile(taintIdentity))
		after.removePluginTaints()
	})
	config, err := clientcmd.BuildConfigFromFlags("", node.Layout().TaintsConfig())
	s.must(err)
	client, err := kubernetes.NewForConfig(config)
	s.must(err)
	s.eventually(podTimeout, func(ctx context.Context) error {
		return refusedByPolicy(dryPatch(ctx, client, cluster.NodeName, `{"spec":{"unschedulable":true}}`))
	})
	return client
}

// removePluginTaints removes all taints of plugin conditions from the Node.
func (s *space) removePluginTaints() {
	s.t.Helper()
	s.kubectl("patch", "node", cluster.NodeName, "--type=merge", "-p", s.taintsPatch(cluster.NodeName,
		func(list []v1.Taint) []v1.Taint {
			return slices.DeleteFunc(list, func(t v1.Taint) bool { return strings.HasPrefix(t.Key, arbiter.ConditionPrefix) })
		}))
}

// dryPatch sends a patch of a Node that is checked like any other and not stored, so that what is wrongly allowed harms
// no other test.
func dryPatch(ctx context.Context, client kubernetes.Interface, name, patch string, subresources ...string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
	return err
}

// refusedByPolicy is nil if err is the answer of the policy; that of RBAC is Forbidden.
func refusedByPolicy(err error) error {
	switch {
	case err == nil:
		return errors.New("the request was accepted")
	case apierrors.IsInvalid(err):
		return nil
	}
	return fmt.Errorf("the policy did not reject the request: %w", err)
}

// taintsPatch is a patch of all taints of a Node.
func (s *space) taintsPatch(name string, change func([]v1.Taint) []v1.Taint) string {
	s.t.Helper()
	n, err := s.client.CoreV1().Nodes().Get(s.ctx, name, metav1.GetOptions{})
	s.must(err)
	list, err := json.Marshal(change(n.Spec.Taints))
	s.must(err)
	return fmt.Sprintf(`{"spec":{"taints":%s}}`, list)
}

func adding(key string) func([]v1.Taint) []v1.Taint {
	return func(list []v1.Taint) []v1.Taint {
		return append(list, v1.Taint{Key: key, Effect: v1.TaintEffectPreferNoSchedule})
	}
}

func removing(key string) func([]v1.Taint) []v1.Taint {
	return func(list []v1.Taint) []v1.Taint {
		return slices.DeleteFunc(list, func(t v1.Taint) bool { return t.Key == key })
	}
}

// otherNode creates a Node without a kubelet, with a taint that somebody has added. It is deleted when the test ends.
func (s *space) otherNode() string {
	s.t.Helper()
	other := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: map[string]string{"plimsoll.example/test": "x"}},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "plimsoll.example/test", Effect: v1.TaintEffectNoSchedule}}},
	}
	_, err := s.client.CoreV1().Nodes().Create(s.ctx, other, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		if err := s.client.CoreV1().Nodes().Delete(context.Background(), other.Name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	return other.Name
}

// TestPluginTaintIdentity verifies what the identity for taints may do: add and remove taints with the prefix of plugin
// conditions on its own Node, and nothing else.
func TestPluginTaintIdentity(t *testing.T) {
	s := newSpace(t)
	client := s.withTaintIdentity()
	const own, key = cluster.NodeName, arbiter.ConditionPrefix + "Test"
	try := func(name, patch string) error { return dryPatch(s.ctx, client, name, patch) }

	_, err := client.CoreV1().Nodes().Patch(s.ctx, own, types.MergePatchType, []byte(s.taintsPatch(own, adding(key))),
		metav1.PatchOptions{})
	s.must(err)
	s.must(try(own, s.taintsPatch(own, removing(key))))
	other := s.otherNode()
	for what, c := range map[string]struct{ node, patch string }{
		"another Node":          {other, s.taintsPatch(other, adding(key))},
		"another prefix":        {own, s.taintsPatch(own, adding("plimsoll.example/test"))},
		"almost the prefix":     {own, s.taintsPatch(own, adding("node.katalyst.kubewharf.io.example/Test"))},
		"a label":               {own, `{"metadata":{"labels":{"plimsoll.example/test":"x"}}}`},
		"all labels":            {own, `{"metadata":{"labels":null}}`},
		"an annotation":         {own, `{"metadata":{"annotations":{"plimsoll.example/test":"x"}}}`},
		"a finalizer":           {own, `{"metadata":{"finalizers":["plimsoll.example/test"]}}`},
		"unschedulable":         {own, `{"spec":{"unschedulable":true}}`},
		"the provider ID":       {own, `{"spec":{"providerID":"plimsoll://test"}}`},
		"taints and a label":    {own, `{"metadata":{"labels":{"plimsoll.example/test":"x"}},"spec":{"taints":null}}`},
		"spec of another Node":  {other, `{"spec":{"unschedulable":true}}`},
		"label of another Node": {other, `{"metadata":{"labels":null}}`},
		"an owner": {own, `{"metadata":{"ownerReferences":[
			{"apiVersion":"v1","kind":"Node","name":"x","uid":"x"}]}}`},
	} {
		if err := refusedByPolicy(try(c.node, c.patch)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.refusedToTaintIdentity(client, other)
	_, err = client.CoreV1().Nodes().Patch(s.ctx, own, types.MergePatchType, []byte(s.taintsPatch(own, removing(key))),
		metav1.PatchOptions{})
	s.must(err)
}

// refusedToTaintIdentity sends requests that RBAC refuses.
func (s *space) refusedToTaintIdentity(client kubernetes.Interface, other string) {
	s.t.Helper()
	nodes, dry := client.CoreV1().Nodes(), []string{metav1.DryRunAll}
	_, listed := nodes.List(s.ctx, metav1.ListOptions{})
	_, created := nodes.Create(s.ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-new"}},
		metav1.CreateOptions{DryRun: dry})
	_, pods := client.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{})
	rules := client.RbacV1().ClusterRoles().Delete(s.ctx, "plimsoll:node-taints", metav1.DeleteOptions{DryRun: dry})
	for what, err := range map[string]error{
		"the status":    dryPatch(s.ctx, client, cluster.NodeName, `{"status":{"phase":"Running"}}`, "status"),
		"a new Node":    created,
		"deletion":      nodes.Delete(s.ctx, other, metav1.DeleteOptions{DryRun: dry}),
		"a list":        listed,
		"pods":          pods,
		"its own rules": rules,
	} {
		if !apierrors.IsForbidden(err) {
			s.t.Errorf("%s: want an answer of RBAC, got %v", what, err)
		}
	}
}
