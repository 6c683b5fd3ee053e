package merge

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// folder adds values to a merged one, in the order in which they have precedence.
type folder struct {
	kind string
	// plugin is that of the value that is being added.
	plugin    string
	conflicts []Conflict
}

// origin says which plugin gave a leaf, or has the origins of what is in a value: of members by their name, of elements
// by their identity. It is a tree because the paths of all leaves can be much longer than the value, with long keys.
type origin struct {
	plugin string
	inner  map[string]*origin
}

func (o *origin) at(name string) *origin {
	if o.inner == nil {
		o.inner = map[string]*origin{}
	}
	if o.inner[name] == nil {
		o.inner[name] = &origin{}
	}
	return o.inner[name]
}

// path is where a value is: a step in the value around it.
type path struct {
	outer *path
	step  string
}

func (p *path) String() string {
	if p.outer == nil {
		return p.step
	}
	return p.outer.String() + cut(p.step)
}

// spot is a value of the merged field: the value itself, its path, and its origin.
type spot struct {
	value  reflect.Value
	path   *path
	origin *origin
}

func (s spot) in(value reflect.Value, name, step string) spot {
	return spot{value, &path{s.path, step}, s.origin.at(name)}
}

// fold adds to a merged value what another value of its type has beside it. Leaves that both have stay as they are.
func (f *folder) fold(into spot, from reflect.Value) {
	if isLeaf(from.Type()) {
		f.foldLeaf(into, from)
		return
	}
	switch from.Kind() {
	case reflect.Pointer:
		if from.IsNil() {
			return
		}
		if into.value.IsNil() {
			into.value.Set(reflect.New(from.Type().Elem()))
		}
		f.fold(spot{into.value.Elem(), into.path, into.origin}, from.Elem())
	case reflect.Struct:
		for i := range from.NumField() {
			member := spot{into.value.Field(i), into.path, into.origin}
			if field := from.Type().Field(i); !field.Anonymous {
				member = into.in(member.value, jsonName(field), "."+jsonName(field))
			}
			f.fold(member, from.Field(i))
		}
	case reflect.Map:
		f.foldMap(into, from)
	default: // there are no other types than lists left
		f.foldList(into, from)
	}
}

// foldLeaf treats the zero value as none, which it is unless it is in a map or behind a pointer.
func (f *folder) foldLeaf(into spot, from reflect.Value) {
	switch {
	case from.IsZero():
	case into.value.IsZero():
		into.value.Set(from)
		into.origin.plugin = f.plugin
	case f.holds(into, from):
		into.value.Set(from)
	}
}

func (f *folder) foldMap(into spot, from reflect.Value) {
	m := into.value
	if m.IsNil() && !from.IsNil() {
		m.Set(reflect.MakeMap(m.Type()))
	}
	for _, key := range sortedKeys(from) {
		entry := into.in(m.MapIndex(key), key.String(), "["+key.String()+"]")
		switch {
		case !entry.value.IsValid():
			m.SetMapIndex(key, from.MapIndex(key))
			entry.origin.plugin = f.plugin
		case f.holds(entry, from.MapIndex(key)):
			m.SetMapIndex(key, from.MapIndex(key))
		}
	}
}

// foldList merges elements that have a key, and appends others that are not there yet.
func (f *folder) foldList(into spot, from reflect.Value) {
	list := into.value
	index := map[string]int{}
	for i := range list.Len() {
		index[identity(list.Index(i))] = i
	}
	for i := range from.Len() {
		element := from.Index(i)
		key, id := keyOf(element), identity(element)
		at, present := index[id]
		if !present {
			at = list.Len()
			index[id] = at
			list.Set(reflect.Append(list, reflect.Zero(element.Type())))
		}
		switch {
		case len(key) > 0:
			f.fold(into.in(list.Index(at), id, "["+strings.Join(key, "/")+"]"), element)
		case !present:
			list.Index(at).Set(element)
		}
	}
}

// holds reports whether a leaf holds instead of the one that is there, and records the conflict if they differ. That of
// an earlier plugin stays. Of those of one plugin the one whose JSON sorts first holds, whatever their order was.
func (f *folder) holds(there spot, leaf reflect.Value) bool {
	if !equalLeaves(there.value, leaf) {
		f.conflicts = append(f.conflicts, Conflict{
			Kind: f.kind, Path: cutTo(there.path.String(), 400), Used: there.origin.plugin, Ignored: f.plugin,
		})
	}
	return there.origin.plugin == f.plugin && bytes.Compare(encode(leaf), encode(there.value)) < 0
}

// isLeaf reports whether values of a type are merged as a whole. A pointer to a quantity is one, since zero is a value.
func isLeaf(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t == quantityType || t == timeType || t.Kind() == reflect.String || t.Kind() == reflect.Int
}

// equalLeaves compares quantities and times by what they are, not by how they were written.
func equalLeaves(a, b reflect.Value) bool {
	a, b = reflect.Indirect(a), reflect.Indirect(b)
	switch x := a.Interface().(type) {
	case resource.Quantity:
		y, _ := b.Interface().(resource.Quantity)
		return x.Cmp(y) == 0
	case metav1.Time:
		y, _ := b.Interface().(metav1.Time)
		return x.Equal(&y)
	default:
		return a.Equal(b)
	}
}

// keyOf returns the key of an element of a list, none if its type has no key.
func keyOf(element reflect.Value) []string {
	var key []string
	for _, name := range keys[element.Type()] {
		key = append(key, element.FieldByName(name).String())
	}
	return key
}

// identity returns what makes an element unique in its list: its key, or else all of it.
func identity(element reflect.Value) string {
	if key := keyOf(element); len(key) > 0 {
		return strings.Join(key, "\xff") // a byte that no string has that was decoded from JSON
	}
	return string(encode(element))
}

// sortLists sorts all lists of a value. The order of elements is
//  1. their key, if they have one, part by part, and
//  2. their bytes, which differ or the elements are equal.
func sortLists(v reflect.Value) {
	switch {
	case isLeaf(v.Type()):
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			sortLists(v.Elem())
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			sortLists(v.Field(i))
		}
	case v.Kind() == reflect.Slice:
		sortList(v)
	}
}

func sortList(list reflect.Value) {
	type entry struct {
		element reflect.Value
		key     []string
		encoded []byte
	}
	entries := make([]entry, list.Len())
	for i := range entries {
		sortLists(list.Index(i))
		element := reflect.New(list.Type().Elem()).Elem()
		element.Set(list.Index(i))
		entries[i] = entry{element, keyOf(element), encode(element)}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(slices.Compare(a.key, b.key), bytes.Compare(a.encoded, b.encoded))
	})
	for i := range entries {
		list.Index(i).Set(entries[i].element)
	}
}

func sortedKeys(m reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int {
		return cmp.Compare(a.String(), b.String())
	})
}

// isEmpty reports whether a field has no value.
func isEmpty(v reflect.Value) bool {
	return v.IsZero() || (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0
}
