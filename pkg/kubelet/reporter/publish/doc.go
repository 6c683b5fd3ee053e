// Package publish writes what reporter plugins report into the CustomNodeResource of the node
// (node.katalyst.kubewharf.io/v1alpha1, cluster scoped, named as the Node), which others write as well:
//
//   - Labels, annotations, the Node as owner and spec are applied on the server (server-side apply) by the field
//     manager plimsoll-reporter, then status. Fields that are not given any more go with the next apply. What
//     katalyst-agent had written there belongs to plimsoll-reporter afterwards, so that it goes as well.
//   - The lists of the kind are atomic for the API server: one applier owns a whole list. So status.conditions, which
//     Katalyst's controllers write, is never written. Of spec.taints, which they write too, only the entries that are
//     recorded as the agent's are changed, by a patch of one version of the object.
//
// What is written:
//
//	publisher  Config, New, Set, SetOptions, State, and Run, which decides when the next attempt is
//	attempt    one attempt: the requests, in their order
//	content    what is applied, from the fields of a merge (pure)
//	live       what the object has of that (pure)
//	hold       what the object keeps while answers of an earlier run are not confirmed (pure)
//	takeover   fields of katalyst-agent (pure)
//	taints     which taints the object should have (pure)
//	record     the file of the taints that are the agent's
//	pace       how often the object is written (pure)
//	problems   what an error means for the next attempt (pure)
//	watch      what others do to the object
//	client     a dynamic client that sends each request once
//
// The object is written when it differs from what is reported, and not otherwise: not at an end of the agent, either.
package publish
