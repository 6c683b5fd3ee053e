// Package merge makes the content of objects out of what reporter plugins report of the node. It is a pure function of
// reports and options, whatever the order of the reports, their contents and their fields:
//
//   - A field is found by the kind of its object, its part (spec, status, metadata) and the name of its Go field. A
//     field that is unknown, is no JSON, or has a wrong type is left out for this plugin, with a Refusal, and changes
//     no other field.
//   - Structs and maps merge member by member. Lists whose elements have a name merge element by element: zones and
//     siblings by type and name, attributes and properties by name, allocations by consumer, taints by key, effect and
//     QoS level, resource packages and pools by name. Zones merge so down the tree. All other lists append, and have
//     equal elements once.
//   - When plugins give different values for the same leaf, that of the plugin whose name sorts first holds, with a
//     Conflict. When one plugin gives two, the one whose JSON sorts first holds. Null gives no value. Neither does a
//     string that is empty, unless it is one of a map or a list: Go types encode empty strings whether they were set or
//     not.
//   - Lists come out sorted: equal content has equal bytes.
//   - Of metadata, labels and annotations are merged, none of them below kubernetes.io and k8s.io. Keys of the Node
//     must be below prefixes that the options allow.
//   - What the API server would refuse the whole object for is left out: label values that are not valid, missing
//     members, objects and annotations that are too large.
package merge
