package parity

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	stockapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"

	"github.com/plimsoll-project/plimsoll/cmd/kubelet/app"
)

// flagLine matches the beginning of a flag in the help text; the lines up to the next one belong to it.
var flagLine = regexp.MustCompile(`(?m)^ {2,6}(?:-\w, )?--([\w-]+)`)

// helpTexts returns the text of --help about each flag: type, meaning, default, deprecation.
func helpTexts(help string) map[string]string {
	texts := map[string]string{}
	_, help, _ = strings.Cut(help, "Flags:\n")
	at := flagLine.FindAllStringSubmatchIndex(help, -1)
	for i, m := range at {
		end := len(help)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		texts["--"+help[m[2]:m[3]]] = strings.Join(strings.Fields(help[m[0]:end]), " ")
	}
	return texts
}

func stockHelp(ctx context.Context) (string, error) {
	var out bytes.Buffer
	command := stockapp.NewKubeletCommand(ctx)
	command.SetArgs([]string{"--help"})
	command.SetOut(&out)
	if err := command.ExecuteContext(ctx); err != nil {
		return "", fmt.Errorf("stock's --help: %w", err)
	}
	return out.String(), nil
}

func ourHelp(ctx context.Context) (string, error) {
	var out, failed bytes.Buffer
	if code := (app.Program{Args: []string{"--help"}, Stdout: &out, Stderr: &failed}).Run(ctx); code != 0 {
		return "", fmt.Errorf("our --help: exit code %d: %s", code, failed.String())
	}
	return out.String(), nil
}

func flagSection(ctx context.Context, _ *tree) (*section, error) {
	s := newSection(flagNames, "The help texts of both programs, flag by flag: name, type, default, meaning, deprecation.")
	stock, err := stockHelp(ctx)
	if err != nil {
		return nil, err
	}
	ours, err := ourHelp(ctx)
	if err != nil {
		return nil, err
	}
	stockTexts, ourTexts := helpTexts(stock), helpTexts(ours)
	for name := range stockTexts {
		s.stock.add(name, "--help")
	}
	for name, text := range ourTexts {
		s.ours.add(name, "--help")
		if stockText, both := stockTexts[name]; both && text != stockText {
			s.differs[name] = fmt.Sprintf("stock says %q, we say %q", stockText, text)
		}
	}
	targets, err := flagTargets()
	if err != nil {
		return nil, err
	}
	for name := range stockTexts {
		if s.details[name] = targets[name]; targets[name] == "" {
			s.details[name] = "a library's own setting"
		}
	}
	return s, nil
}

// flagTargets returns which field each flag sets, found by the address in its value.
func flagTargets() (map[string]string, error) {
	flags, config := options.NewKubeletFlags(), new(options.KubeletServer)
	server, err := options.NewKubeletServer()
	if err != nil {
		return nil, fmt.Errorf("stock's default settings: %w", err)
	}
	config.KubeletConfiguration = server.KubeletConfiguration
	fields := map[uintptr]string{}
	addresses(reflect.ValueOf(flags).Elem(), "KubeletFlags", fields)
	addresses(reflect.ValueOf(&config.KubeletConfiguration).Elem(), "KubeletConfiguration", fields)
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, &config.KubeletConfiguration)
	targets := map[string]string{}
	set.VisitAll(func(f *pflag.Flag) { targets["--"+f.Name] = target(reflect.ValueOf(f.Value), fields, 3) })
	return targets, nil
}

// addresses returns the address of each field. A struct and its first field have the same address: the field counts.
func addresses(v reflect.Value, name string, fields map[uintptr]string) {
	fields[v.Addr().Pointer()] = name
	if (v.Kind() == reflect.Pointer || v.Kind() == reflect.Map) && !v.IsNil() {
		fields[v.Pointer()] = name
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch {
		case field.Anonymous:
			addresses(v.Field(i), name, fields)
		case field.IsExported():
			addresses(v.Field(i), name+"."+field.Name, fields)
		}
	}
}

// target follows the pointers of a flag's value to a known field.
func target(v reflect.Value, fields map[uintptr]string, depth int) string {
	if depth == 0 {
		return ""
	}
	switch v.Kind() {
	case reflect.Interface:
		return target(v.Elem(), fields, depth)
	case reflect.Pointer:
		if name := fields[v.Pointer()]; name != "" && name != "KubeletConfiguration" && name != "KubeletFlags" {
			return name
		}
		return target(v.Elem(), fields, depth-1)
	case reflect.Map:
		return fields[v.Pointer()]
	case reflect.Struct:
		for i := range v.NumField() {
			if name := target(v.Field(i), fields, depth); name != "" {
				return name
			}
		}
	}
	return ""
}
