package parity

import (
	"context"
	"fmt"
	"go/types"
	"reflect"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// leaf is one setting of the configuration file, and the internal fields that contain it, innermost first.
type leaf struct {
	name string
	path []string
}

// leaves returns the settings of the type of the configuration file and of the internal type.
func leaves(external, internal reflect.Type, prefix string, path []string) ([]leaf, error) {
	var all []leaf
	for i := range external.NumField() {
		field := external.Field(i)
		if field.Type == reflect.TypeFor[v1beta1.KubeletConfiguration]().Field(0).Type {
			continue // apiVersion and kind
		}
		inner, ok := internal.FieldByName(field.Name)
		if !ok {
			return nil, fmt.Errorf("%s%s has no internal field", prefix, field.Name)
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		here := append([]string{internal.Name() + "." + field.Name}, path...)
		from, to := plain(field.Type), plain(inner.Type)
		if from.Kind() != reflect.Struct || to.PkgPath() != internal.PkgPath() {
			all = append(all, leaf{prefix + name, here})
			continue
		}
		deeper, err := leaves(from, to, prefix+name+".", here)
		if err != nil {
			return nil, err
		}
		all = append(all, deeper...)
	}
	return all, nil
}

func plain(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// fieldReads returns which packages select which field of the configuration types.
func fieldReads(t *tree) (*section, error) {
	s := newSection("", "")
	return s, t.collect(s, func(src *source, into places) error {
		if strings.HasPrefix(src.ImportPath, configPackage) { // conversion, defaulting and validation read everything
			return nil
		}
		src.fields(func(owner *types.TypeName, field string) {
			if path := owner.Pkg().Path(); path == configPackage || path == optionsPackage {
				into.add(owner.Name()+"."+field, src.short())
			}
		})
		return nil
	}, configPackage)
}

func configSection(_ context.Context, t *tree) (*section, error) {
	s := newSection(configNames,
		"Every setting of the configuration file (v1beta1), and which packages read it. Conversion, defaulting, "+
			"validation and `/configz` are stock's and know all of them.")
	reads, err := fieldReads(t)
	if err != nil {
		return nil, err
	}
	all, err := leaves(reflect.TypeFor[v1beta1.KubeletConfiguration](),
		reflect.TypeFor[kubeletconfig.KubeletConfiguration](), "", nil)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		s.stock.join(l.name, reads.stock, l.path)
		s.ours.join(l.name, reads.ours, l.path)
		s.library.join(l.name, reads.library, l.path)
		if len(s.stock[l.name])+len(s.ours[l.name])+len(s.library[l.name]) == 0 {
			s.library.add(l.name, "nobody: kept for the format")
		}
	}
	return s, nil
}

// join adds the packages that read a field or, if there are none, those that read the struct that contains it.
func (p places) join(name string, reads places, path []string) {
	for _, field := range path {
		for _, place := range reads[field] {
			p.add(name, place)
		}
		if len(p[name]) > 0 {
			return
		}
	}
}

func flagFieldSection(_ context.Context, t *tree) (*section, error) {
	s := newSection(flagFields, "The fields of KubeletFlags, and which packages read them.")
	reads, err := fieldReads(t)
	if err != nil {
		return nil, err
	}
	flags := reflect.TypeFor[options.KubeletFlags]()
	for _, field := range reflect.VisibleFields(flags) {
		if field.Anonymous {
			continue
		}
		owner := flags
		if len(field.Index) > 1 {
			owner = flags.FieldByIndex(field.Index[:len(field.Index)-1]).Type
		}
		path := []string{owner.Name() + "." + field.Name}
		s.stock.join(field.Name, reads.stock, path)
		s.ours.join(field.Name, reads.ours, path)
		s.library.join(field.Name, reads.library, path)
		if len(s.names()) == 0 || len(s.stock[field.Name])+len(s.ours[field.Name])+len(s.library[field.Name]) == 0 {
			s.library.add(field.Name, "nobody: kept for the command line")
		}
	}
	return s, nil
}
