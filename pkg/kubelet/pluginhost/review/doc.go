// Package review has the API server verify the tokens of plugins: who a token belongs to (TokenReview), and whether
// that user may register the plugin (SubjectAccessReview). Nothing is cached, so that a permission that was revoked is
// no permission at the next review. A token is neither logged, at any verbosity, nor part of an error.
//
// A node may create both reviews: NodeRules in plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go of Kubernetes,
// which are the rules of the node authorizer and of the ClusterRole system:node.
package review
