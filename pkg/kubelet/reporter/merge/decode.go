package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/strictjson"
)

var (
	quantityType = reflect.TypeFor[resource.Quantity]()
	timeType     = reflect.TypeFor[metav1.Time]()
	qosLevelType = reflect.TypeFor[node.QoSLevel]()
)

// keys are the types of list elements that have an identity: the Go fields that together are unique in a list.
var keys = map[reflect.Type][]string{
	reflect.TypeFor[node.TopologyZone]():    {"Type", "Name"},
	reflect.TypeFor[node.Sibling]():         {"Type", "Name"},
	reflect.TypeFor[node.Attribute]():       {"Name"},
	reflect.TypeFor[node.Allocation]():      {"Consumer"},
	reflect.TypeFor[node.Property]():        {"PropertyName"},
	reflect.TypeFor[node.Taint]():           {"Key", "Effect", "QoSLevel"},
	reflect.TypeFor[node.ResourcePackage](): {"PackageName"}, // listMapKey in Katalyst's CRD
	reflect.TypeFor[node.ResourcePool]():    {"PoolName"},    // listMapKey in Katalyst's CRD
}

// required are further Go fields without which the API server refuses the object.
var required = map[reflect.Type][]string{
	reflect.TypeFor[node.CNRCondition]():     {"Type", "Status", "LastHeartbeatTime"},
	reflect.TypeFor[node.NodeMetricStatus](): {"UpdateTime"},
	reflect.TypeFor[node.GroupMetricInfo]():  {"QoSLevel"},
	reflect.TypeFor[node.NUMAMetricInfo]():   {"Usage"},
	reflect.TypeFor[v1.Taint]():              {"Key", "Effect"},
}

// decodeField decodes the JSON of a field into a new value of a type. Null is no value, wherever it stands. Members
// that the type does not have are left out, as Katalyst's decoder and the API server do.
func decodeField(t reflect.Type, data []byte) (reflect.Value, error) {
	tree, err := parse(data)
	if err != nil {
		return reflect.Value{}, err
	}
	v := reflect.New(t).Elem()
	return v, decode(tree, v)
}

func decode(tree any, v reflect.Value) error {
	if tree == nil {
		return nil
	}
	switch v.Type() {
	case quantityType:
		return decodeQuantity(tree, v)
	case timeType:
		return decodeTime(tree, v)
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decode(tree, v.Elem())
	case reflect.Struct:
		return decodeStruct(tree, v)
	case reflect.Map:
		return decodeMap(tree, v)
	case reflect.Slice:
		return decodeList(tree, v)
	case reflect.String:
		return decodeString(tree, v)
	default:
		return decodeInt(tree, v)
	}
}

func decodeStruct(tree any, v reflect.Value) error {
	object, ok := tree.(map[string]any)
	if !ok {
		return wrongType(tree, "an object")
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			if err := decode(tree, v.Field(i)); err != nil {
				return err
			}
			continue
		}
		name := jsonName(f)
		if err := decode(object[name], v.Field(i)); err != nil {
			return strictjson.At(name, err)
		}
		if strings.HasSuffix(f.Tag.Get("json"), ",omitempty") && isEmpty(v.Field(i)) {
			v.Field(i).SetZero() // as what is encoded would be decoded
		}
	}
	for _, name := range slices.Concat(keys[v.Type()], required[v.Type()]) {
		if v.FieldByName(name).IsZero() {
			f, _ := v.Type().FieldByName(name)
			return strictjson.At(jsonName(f), errors.New("is missing or empty"))
		}
	}
	return nil
}

func decodeMap(tree any, v reflect.Value) error {
	object, ok := tree.(map[string]any)
	if !ok {
		return wrongType(tree, "an object")
	}
	v.Set(reflect.MakeMap(v.Type()))
	for key, member := range object {
		if member == nil {
			continue
		}
		element := reflect.New(v.Type().Elem()).Elem()
		if err := decode(member, element); err != nil {
			return strictjson.At("["+cut(key)+"]", err)
		}
		v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), element)
	}
	return nil
}

func decodeList(tree any, v reflect.Value) error {
	array, ok := tree.([]any)
	if !ok {
		return wrongType(tree, "a list")
	}
	for i, member := range array {
		if member == nil {
			continue
		}
		element := reflect.New(v.Type().Elem()).Elem()
		if err := decode(member, element); err != nil {
			return strictjson.At("["+strconv.Itoa(i)+"]", err)
		}
		v.Set(reflect.Append(v, element))
	}
	return nil
}

func decodeString(tree any, v reflect.Value) error {
	text, ok := tree.(string)
	if !ok {
		return wrongType(tree, "a string")
	}
	v.SetString(text)
	if v.Type() == qosLevelType && !slices.Contains(node.QoSLevels, node.QoSLevel(text)) {
		return fmt.Errorf("%q: must be one of %v", cut(text), node.QoSLevels)
	}
	return nil
}

func decodeInt(tree any, v reflect.Value) error {
	number, ok := tree.(json.Number)
	if !ok {
		return wrongType(tree, "a number")
	}
	n, err := strconv.ParseInt(number.String(), 10, 32)
	if err != nil {
		return fmt.Errorf("%s: must be a whole number of 32 bits", cut(number.String()))
	}
	v.SetInt(n)
	return nil
}

// decodeTime accepts the times that a metav1.Time encodes and decodes again.
func decodeTime(tree any, v reflect.Value) error {
	text, ok := tree.(string)
	if !ok {
		return wrongType(tree, "a string")
	}
	t, err := time.Parse(time.RFC3339, text)
	if year := t.UTC().Year(); err != nil || year < 1 || year > 9999 {
		return fmt.Errorf("%q: must be a time as 2006-01-02T15:04:05Z", cut(text))
	}
	v.Set(reflect.ValueOf(metav1.NewTime(t.UTC().Truncate(time.Second))))
	return nil
}

// Of quantities that are longer, or have greater exponents, resource.ParseQuantity computes all digits.
const maxQuantityLength, maxExponent = 64, 30

func decodeQuantity(tree any, v reflect.Value) error {
	var text string
	switch t := tree.(type) {
	case string:
		text = t
	case json.Number:
		text = t.String()
	default:
		return wrongType(tree, "a quantity")
	}
	if len(text) > maxQuantityLength || hasGreatExponent(text) {
		return fmt.Errorf("%q: must be a quantity of at most %d characters, with an exponent of at most %d",
			cut(text), maxQuantityLength, maxExponent)
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q: must be a quantity, such as 4, 100m or 2Gi", cut(text))
	}
	// Negating removes the text that was parsed, so that +1 is encoded as 1.
	quantity.Neg()
	quantity.Neg()
	v.Set(reflect.ValueOf(quantity))
	return nil
}

// hasGreatExponent reports whether a quantity has a decimal exponent of which ParseQuantity would compute all digits.
func hasGreatExponent(text string) bool {
	i := strings.IndexAny(text, "eE")
	if i < 0 {
		return false
	}
	exponent, err := strconv.Atoi(text[i+1:])
	if err != nil {
		return errors.Is(err, strconv.ErrRange) // others are suffixes, such as E and Ei
	}
	return exponent < -maxExponent || exponent > maxExponent
}

func wrongType(tree any, want string) error {
	got := "a list"
	switch t := tree.(type) {
	case map[string]any:
		got = "an object"
	case string:
		got = strconv.Quote(cut(t))
	case json.Number:
		got = cut(t.String())
	case bool:
		got = strconv.FormatBool(t)
	}
	return fmt.Errorf("%s: must be %s", got, want)
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// encode returns the JSON of a decoded value, which can always be encoded.
func encode(v reflect.Value) []byte {
	data, err := json.Marshal(v.Interface())
	if err != nil {
		panic("a decoded value cannot be encoded: " + err.Error())
	}
	return data
}
