package merge

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// reservedDomains are those of Kubernetes. Labels and annotations below them steer the scheduler and controllers, and
// the kubelet itself writes resources and labels there.
var reservedDomains = []string{"kubernetes.io", "k8s.io"}

// entryRule returns why a plugin must not report an entry of a map, which the API server would refuse the whole object
// for, or which belongs to others.
type entryRule func(key string, value reflect.Value, plugin string, options *Options) error

// filterEntries removes the entries of a map that a rule refuses. The error says how many there were, and the reason of
// the first one by its key.
func filterEntries(m reflect.Value, rule func(key string, value reflect.Value) error) error {
	var (
		first   error
		refused int
	)
	for _, key := range sortedKeys(m) {
		err := rule(key.String(), m.MapIndex(key))
		if err == nil {
			continue
		}
		m.SetMapIndex(key, reflect.Value{})
		refused++
		if first == nil {
			first = fmt.Errorf("key %q: %w", cut(key.String()), err)
		}
	}
	if refused > 1 {
		return fmt.Errorf("%w; %d more keys are left out", first, refused-1)
	}
	return first
}

func labelRule(key string, value reflect.Value, _ string, _ *Options) error {
	if err := checkKey(key, validation.IsQualifiedName(key)); err != nil {
		return err
	}
	if problems := validation.IsValidLabelValue(value.String()); len(problems) > 0 {
		return fmt.Errorf("the value %q: %s", cut(value.String()), problems[0])
	}
	return nil
}

func annotationRule(key string, _ reflect.Value, _ string, _ *Options) error {
	return checkKey(key, validation.IsQualifiedName(strings.ToLower(key))) // as the API server does
}

// extendedResourceRule has the rules of ValidateNodeStatus for extended resources.
func extendedResourceRule(key string, value reflect.Value, _ string, _ *Options) error {
	// The API server stores quotas of extended resources with this prefix, which must fit as well.
	if err := checkKey(key, validation.IsQualifiedName("requests."+key)); err != nil {
		return err
	}
	quantity, _ := value.Interface().(resource.Quantity)
	if whole := resource.NewQuantity(quantity.Value(), quantity.Format); quantity.Sign() < 0 || whole.Cmp(quantity) != 0 {
		return fmt.Errorf("%s: must be a whole number that is not negative, below 2^63", cut(quantity.String()))
	}
	return nil
}

// nodeRule has an entry of the Node below a prefix that the options allow.
func nodeRule(rule entryRule) entryRule {
	return func(key string, value reflect.Value, plugin string, options *Options) error {
		if err := rule(key, value, plugin, options); err != nil {
			return err
		}
		domain := domainOf(key)
		if domain == "" || !below(domain, options.NodePrefixes) && !below(domain, options.PluginPrefixes[plugin]) {
			return errors.New("is below none of nodePrefixes")
		}
		return nil
	}
}

func checkKey(key string, problems []string) error {
	if len(problems) > 0 {
		return errors.New(problems[0])
	}
	if below(domainOf(key), reservedDomains) {
		return fmt.Errorf("is below %s", strings.Join(reservedDomains, " or "))
	}
	return nil
}

// domainOf returns what is before the slash in a key, in lower case.
func domainOf(key string) string {
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return ""
	}
	return strings.ToLower(domain)
}

func below(domain string, domains []string) bool {
	return slices.ContainsFunc(domains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}
