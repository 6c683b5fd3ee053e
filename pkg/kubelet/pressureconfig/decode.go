package pressureconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// decode decodes one YAML or JSON document into the value that target points to. It is strict, and its error has all
// unknown fields, duplicate fields and values of the wrong type, each with its path and line.
//
// The strict decoders of the API machinery report the path for unknown and duplicate fields only, and for duplicates in
// YAML not even that (ADR 7).
func decode(data []byte, target any) error {
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := documents.Decode(&document); errors.Is(err, io.EOF) {
		return errors.New("the file is empty")
	} else if err != nil {
		return err
	}
	if err := documents.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("the file has more than one document; there must be one")
	}
	if document.Content[0].Kind != yaml.MappingNode {
		return errors.New("the file must be an object with fields")
	}
	d := &decoder{}
	d.value(nil, document.Content[0], reflect.ValueOf(target).Elem())
	return aggregate(d.errs)
}

// maxErrors bounds the number of errors that are reported for one file. With so many it is probably another file.
const maxErrors = 20

func aggregate(errs field.ErrorList) error {
	if len(errs) > maxErrors {
		return fmt.Errorf("%w; and more", errs[:maxErrors].ToAggregate())
	}
	return errs.ToAggregate()
}

type decoder struct{ errs field.ErrorList }

// value decodes a node into v. It passes types that implement json.Unmarshaler, and those that are not structs, slices,
// maps or pointers, to the JSON decoder.
func (d *decoder) value(path *field.Path, n *yaml.Node, v reflect.Value) {
	_, ownJSON := v.Addr().Interface().(json.Unmarshaler)
	switch {
	case n.Kind == yaml.AliasNode:
		d.invalid(path, n, "aliases are not supported")
	case v.Kind() == reflect.Pointer:
		if n.ShortTag() == "!!null" {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, n, v.Elem())
	case ownJSON:
		d.scalar(path, n, v)
	case v.Kind() == reflect.Struct:
		d.object(path, n, v)
	case v.Kind() == reflect.Slice:
		d.list(path, n, v)
	case v.Kind() == reflect.Map:
		d.entries(path, n, v)
	default:
		d.scalar(path, n, v)
	}
}

// scalar decodes a value that is neither an object nor a list.
func (d *decoder) scalar(path *field.Path, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.ScalarNode {
		d.invalid(path, n, "must be "+typeName(v.Type()))
		return
	}
	if n.ShortTag() == "!!null" {
		return
	}
	var plain any
	if err := n.Decode(&plain); err != nil {
		d.invalid(path, n, err.Error())
		return
	}
	text, err := json.Marshal(plain)
	if err == nil {
		err = json.Unmarshal(text, v.Addr().Interface())
	}
	if err != nil {
		d.invalid(path, n, "must be "+typeName(v.Type()))
	}
}

func (d *decoder) list(path *field.Path, n *yaml.Node, v reflect.Value) {
	switch {
	case n.ShortTag() == "!!null":
	case n.Kind != yaml.SequenceNode:
		d.invalid(path, n, "must be a list")
	default:
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			if len(d.errs) > maxErrors {
				return
			}
			d.value(path.Index(i), item, v.Index(i))
		}
	}
}

// entries decodes an object whose keys are data into a map with string keys.
func (d *decoder) entries(path *field.Path, n *yaml.Node, v reflect.Value) {
	if n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.invalid(path, n, "must be an object")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i+1 < len(n.Content) && len(d.errs) <= maxErrors; i += 2 {
		key, item := n.Content[i], reflect.New(v.Type().Elem()).Elem()
		at, name := path.Key(key.Value), reflect.ValueOf(key.Value).Convert(v.Type().Key())
		switch {
		case key.Kind != yaml.ScalarNode:
			d.invalid(path, key, "the key must be a string")
		case v.MapIndex(name).IsValid():
			d.errs = append(d.errs, field.Forbidden(at, fmt.Sprintf("line %d: the key is there twice", key.Line)))
		default:
			d.value(at, n.Content[i+1], item)
			v.SetMapIndex(name, item)
		}
	}
}

func (d *decoder) object(path *field.Path, n *yaml.Node, v reflect.Value) {
	if n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.invalid(path, n, "must be an object with fields")
		return
	}
	known, seen := fieldsOf(v), map[string]bool{}
	for i := 0; i+1 < len(n.Content) && len(d.errs) <= maxErrors; i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		at := field.NewPath(key.Value)
		if path != nil {
			at = path.Child(key.Value)
		}
		target, ok := known[key.Value]
		switch {
		case !ok:
			d.errs = append(d.errs, field.Forbidden(at, fmt.Sprintf("line %d: there is no such field", key.Line)))
		case seen[key.Value]:
			d.errs = append(d.errs, field.Forbidden(at, fmt.Sprintf("line %d: the field is there twice", key.Line)))
		default:
			d.value(at, item, target)
		}
		seen[key.Value] = true
	}
}

// fieldsOf returns the fields of a struct by their JSON names, those of inlined structs included.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	known := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if strings.Contains(options, "inline") {
			for inner, f := range fieldsOf(v.Field(i)) {
				known[inner] = f
			}
			continue
		}
		known[name] = v.Field(i)
	}
	return known
}

func (d *decoder) invalid(path *field.Path, n *yaml.Node, detail string) {
	value := n.Value
	switch n.Kind {
	case yaml.MappingNode:
		value = "{...}"
	case yaml.SequenceNode:
		value = "[...]"
	default: // the value of a scalar
	}
	d.errs = append(d.errs, field.Invalid(path, value, fmt.Sprintf("line %d: %s", n.Line, detail)))
}

// typeName describes the values of a type for an error message.
func typeName(t reflect.Type) string {
	switch t.String() {
	case "v1.Duration":
		return `a duration like "10s" or "5m"`
	case "resource.Quantity":
		return "a quantity like 100Mi or 2Gi"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int32, reflect.Int64, reflect.Int:
		return "a whole number"
	default:
		return "a string"
	}
}
