package app

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/featuregate"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
)

// Validate returns everything that is wrong with the settings, one line per fault. It refuses what stock refuses, and no
// more; but values that stock only stumbles over half-way through its start are found here too, before anything is started.
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

// explain adds to a message of stock's validation what some of them leave out: the value that was refused.
func explain(err error, config *kubeletconfig.KubeletConfiguration) error {
	message := strings.TrimPrefix(err.Error(), "invalid configuration: ")
	if strings.HasPrefix(message, "invalid taint") {
		message = "registerWithTaints (--register-with-taints): " + message
	}
	if strings.HasPrefix(message, "taint.") {
		message = "registerWithTaints: " + message
	}
	if value, known := valueNamedIn(message, config); known && !strings.Contains(message, strings.Trim(value, `"`)) {
		message += "; got " + value
	}
	return errors.New(message)
}

// valueNamedIn finds the first configuration field that a message names, and its value in the form people write it.
func valueNamedIn(message string, config *kubeletconfig.KubeletConfiguration) (string, bool) {
	fields := reflect.ValueOf(config).Elem()
	for _, word := range strings.FieldsFunc(message, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') }) {
		field := fields.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, word) })
		if !field.IsValid() || len(word) < 5 { // shorter words are English
			continue
		}
		return written(field), true
	}
	return "", false
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
