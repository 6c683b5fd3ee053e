package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Times lie within 292 years, the longest time.Duration, of any time at which an agent can run.
const minYear, maxYear = 1700, 2999

// fieldError is an error with the path of the field that it is about.
type fieldError struct {
	path string
	err  error
}

func (e *fieldError) Error() string { return e.path + ": " + e.err.Error() }

func (e *fieldError) Unwrap() error { return e.err }

// At returns the error of a value as that of the value around it, which has it at a step: a name, or an index in
// brackets.
func At(step string, err error) error {
	var inner *fieldError
	if !errors.As(err, &inner) {
		return &fieldError{path: step, err: err}
	}
	if !strings.HasPrefix(inner.path, "[") {
		step += "."
	}
	return &fieldError{path: step + inner.path, err: inner.err}
}

// decode decodes a value, whose syntax is valid, into v.
func decode(data []byte, v reflect.Value) error {
	data = bytes.TrimSpace(data)
	if string(data) == "null" {
		return errors.New("null is not allowed: a field without a value is left out")
	}
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		return decodeTime(data, p)
	case json.Unmarshaler:
		return p.UnmarshalJSON(data)
	case encoding.TextUnmarshaler:
		var text string
		if err := decodeString(data, &text); err != nil {
			return err
		}
		return p.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decode(data, v.Elem())
	case reflect.Struct:
		return decodeStruct(data, v)
	case reflect.Slice:
		return decodeList(data, v)
	case reflect.Map:
		return decodeMap(data, v)
	default:
		return decodeScalar(data, v)
	}
}

// decodeStruct requires the fields that are always encoded: those without omitempty or omitzero.
func decodeStruct(data []byte, v reflect.Value) error {
	if data[0] != '{' {
		return refused(data, "an object")
	}
	fields := fieldsOf(v.Type())
	seen := make([]bool, len(fields))
	err := elements(data, func(name string, value []byte) error {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		switch {
		case i < 0:
			return fmt.Errorf("unknown field %q: must be one of %s", cut(name), strings.Join(namesOf(fields), ", "))
		case seen[i]:
			return At(cut(name), errors.New("must be there once"))
		}
		seen[i] = true
		if err := decode(value, fields[i].in(v)); err != nil {
			return At(cut(name), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range fields {
		if fields[i].required && !seen[i] {
			return At(fields[i].name, errors.New("is missing"))
		}
	}
	return nil
}

func decodeList(data []byte, v reflect.Value) error {
	if data[0] != '[' {
		return refused(data, "a list")
	}
	list := reflect.MakeSlice(v.Type(), 0, 0)
	err := elements(data, func(_ string, value []byte) error {
		n := list.Len()
		list = reflect.Append(list, reflect.Zero(v.Type().Elem()))
		if err := decode(value, list.Index(n)); err != nil {
			return At("["+strconv.Itoa(n)+"]", err)
		}
		return nil
	})
	v.Set(list)
	return err
}

func decodeMap(data []byte, v reflect.Value) error {
	if data[0] != '{' {
		return refused(data, "an object")
	}
	m := reflect.MakeMap(v.Type())
	err := elements(data, func(name string, value []byte) error {
		key := reflect.ValueOf(name).Convert(v.Type().Key())
		if m.MapIndex(key).IsValid() {
			return At(cut(name), errors.New("must be there once"))
		}
		element := reflect.New(v.Type().Elem()).Elem()
		if err := decode(value, element); err != nil {
			return At(cut(name), err)
		}
		m.SetMapIndex(key, element)
		return nil
	})
	v.Set(m)
	return err
}

func decodeScalar(data []byte, v reflect.Value) error {
	switch kind := v.Kind(); kind {
	case reflect.String:
		var text string
		err := decodeString(data, &text)
		v.SetString(text)
		return err
	case reflect.Bool:
		if text := string(data); text != "true" && text != "false" {
			return refused(data, "true or false")
		}
		v.SetBool(data[0] == 't')
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		bits := v.Type().Bits()
		n, err := strconv.ParseInt(string(data), 10, bits)
		if err != nil {
			return refused(data, fmt.Sprintf("a whole number from %d to %d", -1<<(bits-1), 1<<(bits-1)-1))
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		bits := v.Type().Bits()
		n, err := strconv.ParseUint(string(data), 10, bits)
		if err != nil {
			return refused(data, fmt.Sprintf("a whole number from 0 to %d", ^uint64(0)>>(64-bits)))
		}
		v.SetUint(n)
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(string(data), v.Type().Bits())
		if err != nil {
			return refused(data, fmt.Sprintf("a number that fits into %d bits", v.Type().Bits()))
		}
		v.SetFloat(n)
	default:
		return fmt.Errorf("values of type %s cannot be decoded", v.Type())
	}
	return nil
}

func decodeString(data []byte, text *string) error {
	if data[0] != '"' {
		return refused(data, "a string")
	}
	if plain := data[1 : len(data)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		*text = string(plain)
		return nil
	}
	return json.Unmarshal(data, text)
}

// decodeTime refuses other zones than UTC, since equal times in different zones are different values. The zero time,
// which means that a time is unknown, is not encoded.
func decodeTime(data []byte, t *time.Time) error {
	if err := t.UnmarshalJSON(data); err != nil || !bytes.HasSuffix(data, []byte(`Z"`)) {
		return refused(data, `a time as "2006-01-02T15:04:05.999999999Z", in UTC`)
	}
	if year := t.Year(); year < minYear || year > maxYear {
		return refused(data, fmt.Sprintf("a time in the years from %d to %d", minYear, maxYear))
	}
	return nil
}

// refused is the error of a value that is not what is allowed.
func refused(data []byte, allowed string) error {
	return fmt.Errorf("%s: must be %s", cut(string(data)), allowed)
}

// cut bounds the length of a text in an error.
func cut(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// elements calls f for each member of an object, or for each element of a list, which has no name. The syntax of data
// is valid.
func elements(data []byte, f func(name string, value []byte) error) error {
	object := data[0] == '{'
	for i := skipSpace(data, 1); data[i] != '}' && data[i] != ']'; {
		var name string
		if object {
			begin := i
			stringAt(data, &i)
			if err := decodeString(data[begin:i+1], &name); err != nil {
				return err
			}
			i = skipSpace(data, skipSpace(data, i+1)+1) // the colon
		}
		end := endOfValue(data, i)
		if err := f(name, data[i:end]); err != nil {
			return err
		}
		if i = end; data[i] == ',' {
			i = skipSpace(data, i+1)
		}
	}
	return nil
}

func skipSpace(data []byte, i int) int {
	for strings.IndexByte(" \t\r\n", data[i]) >= 0 {
		i++
	}
	return i
}

// endOfValue returns where the value that begins at i, in an object or a list, is followed by a comma, or by the end
// of the object or list.
func endOfValue(data []byte, i int) int {
	for depth := 0; ; i++ {
		switch data[i] {
		case '"':
			stringAt(data, &i)
		case '{', '[':
			depth++
		case ',':
			if depth == 0 {
				return i
			}
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
}

// field is a field of a struct as package encoding/json encodes it. Fields of embedded structs are among them.
type field struct {
	name     string
	index    []int
	required bool
}

// fieldsByType keeps the fields of each struct that was decoded.
var fieldsByType sync.Map

func fieldsOf(t reflect.Type) []field {
	if fields, ok := fieldsByType.Load(t); ok {
		return fields.([]field)
	}
	fields := appendFields(nil, t, nil)
	fieldsByType.Store(t, fields)
	return fields
}

func appendFields(fields []field, t reflect.Type, index []int) []field {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		path := append(slices.Clone(index), i)
		switch {
		case name == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Pointer:
			fields = appendFields(fields, f.Type.Elem(), path)
		case f.Anonymous && name == "":
			fields = appendFields(fields, f.Type, path)
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			fields = append(fields, field{name: name, index: path, required: !strings.Contains(options, "omit")})
		}
	}
	return fields
}

func namesOf(fields []field) []string {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	return names
}

// in returns the field of a struct. Pointers to embedded structs on the way must not be nil.
func (f *field) in(v reflect.Value) reflect.Value { return v.FieldByIndex(f.index) }
