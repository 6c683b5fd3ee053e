// Package strictjson decodes JSON that may come from anywhere. It refuses what package encoding/json would not have
// encoded in the same way (unknown, repeated and missing fields, null, times that are not in UTC), and documents that
// are larger than they can reasonably be, before memory is allocated for them. Each error names the field, its value,
// and what is allowed.
package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Limits bound a document. Each of them must be set.
type Limits struct {
	// Bytes is the greatest length of a document, String that of a string in it.
	Bytes, String int
	// Depth is how deeply arrays and objects may be nested.
	Depth int
	// Elements is how many elements an array, or members an object may have; Fields are the names of those that may have
	// more. Total is how many there may be in the whole document.
	Elements, Total int
	Fields          map[string]int
}

// Unmarshal decodes a document into v.
func Unmarshal(data []byte, v any, limits Limits) error {
	if len(data) > limits.Bytes {
		return fmt.Errorf("the document has %d bytes, more than %d", len(data), limits.Bytes)
	}
	if !json.Valid(data) {
		return json.Unmarshal(data, v) // says where the syntax is wrong
	}
	if err := check(data, &limits); err != nil {
		return err
	}
	return Decode(data, v)
}

// Decode is for methods UnmarshalJSON, which get a part of a document that was held against its limits. Fields that are
// absent keep the value that they have in v.
func Decode(data []byte, v any) error { return decode(data, reflect.ValueOf(v).Elem()) }

// MarshalNamed encodes a list as an object with the elements that are not zero. name returns the name of the element
// with an index.
func MarshalNamed[T comparable](list []T, name func(int) string) ([]byte, error) {
	var zero T
	object := map[string]*T{}
	for i := range list {
		if list[i] != zero {
			object[name(i)] = &list[i]
		}
	}
	return json.Marshal(object)
}

// UnmarshalNamed decodes what MarshalNamed has encoded. Elements that are not there become zero.
func UnmarshalNamed[T any](data []byte, list []T, name func(int) string) error {
	names := make([]string, len(list))
	for i := range list {
		names[i] = name(i)
	}
	if data[0] != '{' {
		return refused(data, "an object")
	}
	clear(list)
	seen := make([]bool, len(list))
	return elements(data, func(key string, value []byte) error {
		i := slices.Index(names, key)
		switch {
		case i < 0:
			return fmt.Errorf("unknown name %q: must be one of %s", cut(key), strings.Join(names, ", "))
		case seen[i]:
			return At(key, errors.New("must be there once"))
		}
		seen[i] = true
		if err := Decode(value, &list[i]); err != nil {
			return At(key, err)
		}
		return nil
	})
}
