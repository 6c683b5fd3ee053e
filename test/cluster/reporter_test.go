package cluster

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// manifests returns the documents of the manifests of reporter plugins, by kind.
func manifests(t *testing.T) map[string][]byte {
	t.Helper()
	root, err := FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	documents := map[string][]byte{}
	for _, file := range NewLayout(root, "test").reporterManifests() {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(data), "\n---\n") {
			var meta struct{ Kind string }
			if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
				t.Fatal(err)
			}
			documents[meta.Kind] = []byte(document)
		}
	}
	return documents
}

func decode[T any](t *testing.T, documents map[string][]byte, kind string) (object T) {
	t.Helper()
	if err := yaml.UnmarshalStrict(documents[kind], &object); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return object
}

// Whatever the role permits is bound by the policy, and the policy is in force for the group of the role.
func TestReporterManifests(t *testing.T) {
	documents := manifests(t)
	role := decode[rbacv1.ClusterRole](t, documents, "ClusterRole")
	binding := decode[rbacv1.ClusterRoleBinding](t, documents, "ClusterRoleBinding")
	policy := decode[admissionv1.ValidatingAdmissionPolicy](t, documents, "ValidatingAdmissionPolicy")
	inForce := decode[admissionv1.ValidatingAdmissionPolicyBinding](t, documents, "ValidatingAdmissionPolicyBinding")

	if binding.RoleRef.Name != role.Name || len(binding.Subjects) != 1 || binding.Subjects[0].Name != "system:nodes" {
		t.Errorf("the role %s is bound by %+v", role.Name, binding)
	}
	plural, group, _ := strings.Cut(reporterKind, ".")
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			if name, _, _ := strings.Cut(resource, "/"); name != plural || !slices.Equal(rule.APIGroups, []string{group}) {
				t.Errorf("the role is about %s of %v", resource, rule.APIGroups)
			}
		}
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list", "watch", "create", "patch", "update"}, verb) {
				t.Errorf("the role permits %s", verb)
			}
		}
	}
	match := policy.Spec.MatchConstraints.ResourceRules[0]
	if !slices.Equal(match.Resources, []string{plural, plural + "/*"}) ||
		match.Operations[0] != admissionv1.OperationAll || !slices.Equal(match.APIGroups, []string{group}) ||
		*policy.Spec.FailurePolicy != admissionv1.Fail {
		t.Errorf("the policy is about %+v", match)
	}
	deny := []admissionv1.ValidationAction{admissionv1.Deny}
	if policy.Name != reporterPolicy || inForce.Spec.PolicyName != reporterPolicy ||
		!slices.Equal(inForce.Spec.ValidationActions, deny) {
		t.Errorf("the policy %s has the binding %+v", policy.Name, inForce.Spec)
	}
}

func TestRefusedByReporterPolicy(t *testing.T) {
	byPolicy := errors.New("ValidatingAdmissionPolicy 'plimsoll-node-reporter' with binding ... denied request")
	if err := refusedByReporterPolicy(byPolicy); err != nil {
		t.Error(err)
	}
	for _, err := range []error{nil, errors.New("is forbidden: User cannot create resource")} {
		if refusedByReporterPolicy(err) == nil {
			t.Errorf("%v counts as an answer of the policy", err)
		}
	}
}
