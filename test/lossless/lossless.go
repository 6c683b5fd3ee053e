// Package lossless checks that an encoding loses no field of a value, those included that are added later.
package lossless

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Encoding is an encoding of values of a type, and what a test has to know about the type.
type Encoding[T any] struct {
	// Recode encodes a value and decodes the result.
	Recode func(T) (T, error)
	// Equal compares two values; reflect.DeepEqual if it is nil.
	Equal func(a, b T) bool
	// Values makes values of types that do not allow every value, each different from the others as far as possible: the
	// argument counts the values of all types. Nothing inside of these values is looked at.
	Values map[reflect.Type]func(n int) any
	// Prepare makes a value valid that has something in each field; nil if it is.
	Prepare func(*T)
	// Refused are the fields without which, or without an element of which, a value is not decoded. Indexes in paths are
	// empty: Pods[].UID.
	Refused []string
	// Exempt are the fields that are not encoded, with the reason.
	Exempt map[string]string
}

// Check checks that a value with something in each field is decoded as it was encoded; and likewise after one field of
// it has been set to its zero value, or one list or map to an empty one.
func (e *Encoding[T]) Check(t *testing.T) {
	t.Helper()
	for _, fault := range e.faults() {
		t.Error(fault)
	}
}

// Full makes a valid value with something in each field.
func (e *Encoding[T]) Full() T {
	full, _ := e.full()
	return full
}

func (e *Encoding[T]) full() (v T, unexported []string) {
	f := filler{values: e.Values}
	f.fill("", reflect.ValueOf(&v).Elem())
	if e.Prepare != nil {
		e.Prepare(&v)
	}
	return v, f.unexported
}

func (e *Encoding[T]) faults() (faults []string) {
	full, unexported := e.full()
	for _, path := range unexported {
		if !e.exempt(path) {
			faults = append(faults, path+" is not exported, so that it cannot be checked")
		}
	}
	faults = append(faults, e.difference("all fields", full)...)
	refused := map[string]bool{}
	e.visit("", reflect.ValueOf(&full).Elem(), func(path string, v reflect.Value) {
		if e.exempt(path) {
			return
		}
		before := reflect.New(v.Type()).Elem()
		before.Set(v)
		for _, value := range emptied(v) {
			v.Set(value)
			if general := withoutIndexes(path); !slices.Contains(e.Refused, general) {
				faults = append(faults, e.difference(fmt.Sprintf("%s set to %#v", path, v.Interface()), full)...)
			} else if _, err := e.Recode(full); err != nil {
				refused[general] = true
			}
		}
		v.Set(before)
	})
	for _, path := range e.Refused {
		if !refused[path] {
			faults = append(faults, "a value without "+path+" is decoded")
		}
	}
	return faults
}

// difference encodes and decodes a value, and says what was lost; nil if nothing was.
func (e *Encoding[T]) difference(what string, v T) []string {
	got, err := e.Recode(v)
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", what, err)}
	}
	equal := e.Equal
	if equal == nil {
		equal = func(a, b T) bool { return reflect.DeepEqual(a, b) }
	}
	if equal(got, v) {
		return nil
	}
	everything := cmp.Exporter(func(reflect.Type) bool { return true })
	return []string{fmt.Sprintf("%s: what was encoded and decoded differs (-original +decoded):\n%s", what,
		cmp.Diff(v, got, everything))}
}

func (e *Encoding[T]) exempt(path string) bool {
	_, exempt := e.Exempt[path]
	if !exempt {
		_, exempt = e.Exempt[withoutIndexes(path)]
	}
	return exempt
}

var index = regexp.MustCompile(`\[[^\]]*\]`)

func withoutIndexes(path string) string { return index.ReplaceAllString(path, "[]") }

// emptied returns what the field may be without content.
func emptied(v reflect.Value) []reflect.Value {
	list := []reflect.Value{reflect.Zero(v.Type())}
	switch v.Kind() {
	case reflect.Slice:
		list = append(list, reflect.MakeSlice(v.Type(), 0, 0))
	case reflect.Map:
		list = append(list, reflect.MakeMap(v.Type()))
	default:
	}
	return list
}

// isLeaf reports whether nothing inside of a value is visited.
func (e *Encoding[T]) isLeaf(t reflect.Type) bool {
	if _, ok := e.Values[t]; ok || t == reflect.TypeFor[time.Time]() {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Struct, reflect.Slice, reflect.Array:
		return false
	default:
		return true
	}
}

// visit calls f for all fields and elements in a value that can be set.
func (e *Encoding[T]) visit(path string, v reflect.Value, f func(string, reflect.Value)) {
	if path != "" && v.CanSet() {
		f(path, v)
	}
	switch {
	case e.isLeaf(v.Type()):
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() && !e.isLeaf(v.Type().Elem()) {
			e.visit(path, v.Elem(), f)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() || field.Anonymous {
				e.visit(join(path, field), v.Field(i), f)
			}
		}
	default:
		for i := range v.Len() {
			e.visit(fmt.Sprintf("%s[%d]", path, i), v.Index(i), f)
		}
	}
}

// join appends a field to a path. Embedded structs are no part of it.
func join(path string, field reflect.StructField) string {
	switch {
	case field.Anonymous:
		return path
	case path == "":
		return field.Name
	}
	return path + "." + field.Name
}

// filler puts something into each field.
type filler struct {
	values     map[reflect.Type]func(int) any
	n          int
	unexported []string
}

func (f *filler) fill(path string, v reflect.Value) {
	f.n++
	if make, ok := f.values[v.Type()]; ok {
		v.Set(reflect.ValueOf(make(f.n)))
		return
	}
	switch kind := v.Kind(); {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 1, 0, 0, f.n, f.n, time.UTC)))
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(path, v.Elem())
	case kind == reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.IsExported() || field.Anonymous {
				f.fill(join(path, field), v.Field(i))
			} else {
				f.unexported = append(f.unexported, join(path, field))
			}
		}
	case kind == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fillElements(path, v)
	case kind == reflect.Array:
		f.fillElements(path, v)
	case kind == reflect.Map:
		key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(path, key)
		f.fill(path, element)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, element)
	default:
		f.fillScalar(path, v)
	}
}

func (f *filler) fillElements(path string, v reflect.Value) {
	for i := range v.Len() {
		f.fill(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
	}
}

func (f *filler) fillScalar(path string, v reflect.Value) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprintf("text%06d", f.n))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(int64(f.n))
	case v.CanUint():
		v.SetUint(uint64(f.n))
	case v.CanFloat():
		v.SetFloat(float64(f.n))
	default:
		panic(fmt.Sprintf("%s: no value of type %s", path, v.Type()))
	}
}
