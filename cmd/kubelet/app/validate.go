package app

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/featuregate"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
)

// Validate returns everything that is wrong with the settings, one line per fault. It refuses what stock refuses, and
// no more; but values that stock only stumbles over half-way through its start are found here too, before anything is
// started.
func (s *Settings) Validate(gates featuregate.FeatureGate) error {
	faults := flatten(validation.ValidateKubeletConfiguration(s.Config, gates))
	for i, fault := range faults {
		faults[i] = explain(fault, s.Config)
	}
	for _, check := range checks {
		if err := check(s); err != nil {
			faults = append(faults, flatten(err)...)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	lines := make([]string, 0, len(faults))
	for _, fault := range faults {
		lines = append(lines, "\n  "+fault.Error())
	}
	return fmt.Errorf("invalid configuration:%s", strings.Join(lines, ""))
}

// flatten takes joined and aggregated errors apart.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	var parts []error
	switch many := err.(type) { //nolint:errorlint // a wrapped list has a context of its own, which must stay with it
	case interface{ Unwrap() []error }:
		parts = many.Unwrap()
	case interface{ Errors() []error }:
		parts = many.Errors()
	default:
		return []error{err}
	}
	var flat []error
	for _, part := range parts {
		flat = append(flat, flatten(part)...)
	}
	return flat
}

// unnamed are beginnings of messages of stock's validation that do not name their field, and that field.
var unnamed = []struct{ message, field string }{
	{"invalid taint", "registerWithTaints (--register-with-taints)"},
	{"taint.", "registerWithTaints (--register-with-taints)"},
	{"pod logs path", "podLogsDir (--pod-logs-dir)"},
	{"kubelet is configured to not run on a host using cgroup v1", "failCgroupV1 (--fail-cgroupv1)"},
}

// explain adds to a message of stock's validation what some of them leave out: the field and the value that was
// refused.
func explain(err error, config *kubeletconfig.KubeletConfiguration) error {
	message := strings.TrimPrefix(err.Error(), "invalid configuration: ")
	for _, entry := range unnamed {
		if strings.HasPrefix(message, entry.message) {
			return fmt.Errorf("%s: %s", entry.field, message)
		}
	}
	if value, missing := missingValue(message, config); missing {
		message += "; got " + value
	}
	return errors.New(message)
}

// fieldName matches the first word of a message, and the flag after it.
var fieldName = regexp.MustCompile(`^(?:the )?([a-zA-Z]+)(?: \(--[a-zA-Z0-9-]+\))?`)

// missingValue returns the value of the field that a message begins with, unless the message goes on with it.
func missingValue(message string, config *kubeletconfig.KubeletConfiguration) (string, bool) {
	name := fieldName.FindStringSubmatch(message)
	if name == nil {
		return "", false
	}
	field := reflect.ValueOf(config).Elem().FieldByNameFunc(func(candidate string) bool {
		return strings.EqualFold(candidate, name[1])
	})
	if !field.IsValid() {
		return "", false
	}
	value := written(field)
	rest := strings.TrimSpace(strings.TrimPrefix(message, name[0]))
	return value, !strings.HasPrefix(strings.TrimLeft(rest, `"{`), strings.Trim(value, `"`))
}

// written is a value in the form people write it.
func written(field reflect.Value) string {
	if field.Kind() == reflect.Pointer && field.IsNil() {
		return "nothing"
	}
	switch value := reflect.Indirect(field).Interface().(type) {
	case metav1.Duration:
		return value.Duration.String()
	case string:
		return strconv.Quote(value)
	default:
		return fmt.Sprint(value)
	}
}
