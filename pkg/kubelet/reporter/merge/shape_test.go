package merge_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// shape is the second description of the types, on JSON, which the naive merge and the random reports are made of.
type shape struct {
	is      string // object, text, word, quantity, quantities, texts, time, number, keyed, set
	members map[string]*shape
	element *shape
	// key are the members that are unique in a list.
	key []string
	// words are the values of a word.
	words []string
	// emptyIsNone: a map without entries is not encoded.
	emptyIsNone bool
}

func object(members map[string]*shape) *shape { return &shape{is: "object", members: members} }

func keyed(element *shape, key ...string) *shape {
	return &shape{is: "keyed", element: element, key: key}
}

func set(element *shape) *shape { return &shape{is: "set", element: element} }

func word(words ...string) *shape { return &shape{is: "word", words: words} }

var (
	text       = &shape{is: "text"}
	name       = word("0", "1", "2", "10", "a", "ä\x00", "a/b")
	quantity   = &shape{is: "quantity"}
	quantities = &shape{is: "quantities"}
	when       = &shape{is: "time"}
	number     = &shape{is: "number"}
	zoneType   = word("Socket", "Numa", "GPU")
	qosLevel   = word("reclaimed_cores", "shared_cores")
	attributes = keyed(object(map[string]*shape{"name": name, "value": text}), "name")
	resources  = object(map[string]*shape{
		"allocatable": quantities, "capacity": quantities,
		"resourcePackages": keyed(object(map[string]*shape{
			"packageName": name, "allocatable": quantities, "attributes": attributes,
		}), "packageName"),
		"resourcePools": keyed(object(map[string]*shape{
			"poolName": name, "minAllocatable": quantities, "maxAllocatable": quantities, "attributes": attributes,
		}), "poolName"),
	})
	zones = zonesShape()
	usage = map[string]*shape{
		"genericUsage": {is: "quantities", emptyIsNone: true},
		"numaUsage":    set(object(map[string]*shape{"numaId": number, "usage": quantities})),
	}
)

func zonesShape() *shape {
	zone := object(map[string]*shape{
		"type": zoneType, "name": name, "resources": resources, "attributes": attributes,
		"allocations": keyed(object(map[string]*shape{"consumer": name, "requests": quantities}), "consumer"),
		"siblings": keyed(object(map[string]*shape{"type": zoneType, "name": name, "attributes": attributes}),
			"type", "name"),
	})
	zones := keyed(zone, "type", "name")
	zone.members["children"] = zones
	return zones
}

// fieldShape is a field that plugins can report.
type fieldShape struct {
	kind, path string
	part       int32
	name       string
	shape      *shape
}

var fieldShapes = []fieldShape{
	{"CustomNodeResource", "spec.nodeResourceProperties", 0, "NodeResourceProperties", keyed(object(map[string]*shape{
		"propertyName": name, "propertyValues": set(text), "propertyQuantity": quantity,
	}), "propertyName")},
	{"CustomNodeResource", "spec.taints", 0, "Taints", keyed(object(map[string]*shape{
		"key": name, "value": text, "effect": word("NoSchedule", "NoExecute"), "timeAdded": when, "qosLevel": qosLevel,
	}), "key", "effect", "qosLevel")},
	{"CustomNodeResource", "status.resources", 1, "Resources", resources},
	{"CustomNodeResource", "status.topologyZone", 1, "TopologyZone", zones},
	{"CustomNodeResource", "status.topologyPolicy", 1, "TopologyPolicy", text},
	{"CustomNodeResource", "status.conditions", 1, "Conditions", set(object(map[string]*shape{
		"type": name, "status": word("True", "False"), "lastHeartbeatTime": when, "reason": text, "message": text,
	}))},
	{"CustomNodeResource", "status.nodeMetricStatus", 1, "NodeMetricStatus", object(map[string]*shape{
		"updateTime": when, "nodeMetric": object(usage), "groupMetric": set(object(map[string]*shape{
			"QoSLevel": qosLevel, "podList": set(text),
			"numaUsage": usage["numaUsage"], "genericUsage": usage["genericUsage"],
		})),
	})},
	{"CustomNodeResource", "metadata.labels", 2, "Labels", &shape{is: "texts"}},
	{"CustomNodeResource", "metadata.annotations", 2, "Annotations", &shape{is: "texts"}},
	{"Node", "metadata.labels", 2, "Labels", &shape{is: "texts"}},
	{"Node", "metadata.annotations", 2, "Annotations", &shape{is: "texts"}},
	{"Node", "status.capacity", 1, "Capacity", quantities},
	{"Node", "status.allocatable", 1, "Allocatable", quantities},
}

// mapKeys are keys of maps, each with the kinds whose maps may have it.
var mapKeys = map[string]string{
	"example.com/a": "both", "a.example.com/b": "both", "cpu": "own", "other.io/gpu": "own", "myexample.com/a": "own",
	"kubernetes.io/hostname": "none", "node-restriction.kubernetes.io/a": "none", "k8s.io/a": "none", "x.k8s.io/a": "none",
}

func keyAllowed(kind, path, key string) bool {
	if kind == "CustomNodeResource" && !strings.HasPrefix(path, "metadata.") {
		return true
	}
	return mapKeys[key] == "both" || mapKeys[key] == "own" && kind == "CustomNodeResource"
}

// random makes a value of a shape. Required members are there.
func random(r *rand.Rand, s *shape, depth int) any {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	switch s.is {
	case "text":
		return pick("", "a", "b", "c d", "<ä>")
	case "word":
		return pick(s.words...)
	case "quantity":
		return pick("0", "1", "1000m", "2", "1Ki", "1024", "3")
	case "time":
		return pick("2026-01-02T03:04:05Z", "2026-01-02T04:04:05+01:00", "2027-01-02T03:04:05Z")
	case "number":
		return r.IntN(3)
	case "quantities", "texts":
		m := map[string]any{}
		for range r.IntN(4) {
			var value any
			if value = random(r, map[string]*shape{"quantities": quantity, "texts": text}[s.is], depth); r.IntN(8) == 0 {
				value = nil
			}
			m[pick(keysOf(mapKeys)...)] = value
		}
		if s.is == "texts" {
			for key, value := range m {
				if value == "c d" || value == "<ä>" {
					m[key] = "label"
				}
			}
		}
		return m
	case "object":
		m := map[string]any{}
		for _, member := range keysOf(s.members) {
			switch {
			case slices.Contains([]string{"allocatable", "requests", "attributes", "children"}, member) && depth > 3:
			case isRequired(s, member) || r.IntN(3) > 0:
				m[member] = random(r, s.members[member], depth+1)
			case r.IntN(4) == 0:
				m[member] = nil
			}
		}
		return m
	default:
		list := []any{}
		for range r.IntN(4) {
			if list = append(list, random(r, s.element, depth+1)); r.IntN(16) == 0 {
				list = append(list, nil)
			}
		}
		return list
	}
}

func isRequired(s *shape, member string) bool {
	required := []string{"lastHeartbeatTime", "numaId", "updateTime", "usage"}
	return s.members[member].is == "word" || slices.Contains(required, member)
}

// shuffled returns a value with its lists in another order.
func shuffled(r *rand.Rand, value any) any {
	switch v := value.(type) {
	case []any:
		list := []any{}
		for _, i := range r.Perm(len(v)) {
			list = append(list, shuffled(r, v[i]))
		}
		return list
	case map[string]any:
		m := map[string]any{}
		for key, member := range v {
			m[key] = shuffled(r, member)
		}
		return m
	default:
		return value
	}
}

// flatten calls leaf with the path and the canonical text of each leaf of a value.
func flatten(s *shape, path string, value any, leaf func(path, text string)) {
	if value == nil {
		return
	}
	switch s.is {
	case "text", "word":
		if value != "" {
			leaf(path, asJSON(value))
		}
	case "quantity":
		q := resource.MustParse(value.(string))
		leaf(path, asJSON(&q))
	case "time":
		leaf(path, asJSON(inUTC(value.(string))))
	case "number":
		leaf(path, fmt.Sprint(value))
	case "quantities", "texts":
		if !s.emptyIsNone {
			leaf(path+"{}", "")
		}
		for key, member := range value.(map[string]any) {
			switch {
			case member == nil:
			case s.is == "quantities":
				flatten(quantity, path+"["+key+"]", member, leaf)
			default:
				leaf(path+"["+key+"]", asJSON(member))
			}
		}
	case "object":
		for member, inner := range value.(map[string]any) {
			flatten(s.members[member], path+"."+member, inner, leaf)
		}
	case "keyed":
		for _, element := range value.([]any) {
			if element != nil {
				flatten(s.element, path+"["+elementKey(s, element)+"]", element, leaf)
			}
		}
	case "set":
		for _, element := range value.([]any) {
			if element != nil {
				leaf(path+"["+canonical(s.element, element)+"]", "")
			}
		}
	}
}

func elementKey(s *shape, element any) string {
	var parts []string
	for _, member := range s.key {
		parts = append(parts, element.(map[string]any)[member].(string))
	}
	return strings.Join(parts, "/")
}

// canonical is the sorted list of the leaves of an element.
func canonical(s *shape, element any) string {
	if s == text {
		return asJSON(element)
	}
	var leaves []string
	flatten(s, "", element, func(path, text string) { leaves = append(leaves, path+"="+text) })
	slices.Sort(leaves)
	return strings.Join(slices.Compact(leaves), ",")
}

func asJSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func keysOf[V any](m map[string]V) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
