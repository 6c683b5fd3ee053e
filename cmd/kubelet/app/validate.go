package app

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
)

// Validate returns all errors of the settings, one per line. It rejects what stock rejects, and no more; including
// values that make the start of stock fail later.
func (s *Settings) Validate() error {
	errs := flatten(validation.ValidateKubeletConfiguration(s.Config, s.FeatureGates))
	for i, err := range errs {
		errs[i] = addFieldAndValue(err, s.Config)
	}
	for _, check := range checks {
		if err := check(s); err != nil {
			errs = append(errs, flatten(err)...)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	lines := make([]string, 0, len(errs))
	for _, err := range errs {
		lines = append(lines, "\n  "+err.Error())
	}
	return fmt.Errorf("invalid configuration:%s", strings.Join(lines, ""))
}

// flatten returns the parts of joined and aggregated errors.
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

// unnamedFields are prefixes of messages of stock's validation without a field, and the field.
var unnamedFields = []struct{ message, field string }{
	{"invalid taint", "registerWithTaints (--register-with-taints)"},
	{"taint.", "registerWithTaints (--register-with-taints)"},
	{"pod logs path", "podLogsDir (--pod-logs-dir)"},
	{"kubelet is configured to not run on a host using cgroup v1", "failCgroupV1 (--fail-cgroupv1)"},
}

// addFieldAndValue adds field and value to messages of stock's validation without them.
func addFieldAndValue(err error, config *kubeletconfig.KubeletConfiguration) error {
	message := strings.TrimPrefix(err.Error(), "invalid configuration: ")
	for _, entry := range unnamedFields {
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

// missingValue returns the value of the field that a message begins with, unless it follows in the message.
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
	value := formatValue(field)
	rest := strings.TrimSpace(strings.TrimPrefix(message, name[0]))
	return value, !strings.HasPrefix(strings.TrimLeft(rest, `"{`), strings.Trim(value, `"`))
}

// formatValue formats a value as in a configuration file.
func formatValue(field reflect.Value) string {
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
