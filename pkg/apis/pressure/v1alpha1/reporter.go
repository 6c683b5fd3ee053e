package v1alpha1

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// reservedDomains are those of Kubernetes. No plugin may report anything below them, see package merge.
var reservedDomains = []string{"kubernetes.io", "k8s.io"}

func (v *validator) reporterPlugins(p *field.Path, r *ReporterPluginsConfiguration) {
	v.plugins(p.Child("remote"), r.Remote, checkRemoteReporter)
	v.plugins(p.Child("inTree"), r.InTree, inTreePlugin(InTreeReporterPlugins()))
	v.publish(p.Child("publish"), r.Publish)
	v.entries(p.Child("fields"), r.Fields, checkLeftOutField)
	v.duration(p.Child("period"), r.Period, time.Second, 5*time.Minute)
	v.duration(p.Child("callTimeout"), r.CallTimeout, 100*time.Millisecond, 30*time.Second)
	v.duration(p.Child("stopGracePeriod"), r.StopGracePeriod, 0, time.Hour)
	v.duration(p.Child("sustained"), r.Sustained, time.Second, 5*time.Minute)
	v.labels(p.Child("labels"), r.Labels)
	v.entries(p.Child("nodePrefixes"), r.NodePrefixes, checkNodePrefix)
}

// checkRemoteReporter is the check of names of reporter plugins behind sockets.
func checkRemoteReporter(name string) string {
	if name == ConditionsReporterPlugin {
		return "must not be the plugin of this kubelet that reports the conditions of eviction plugins; must be the " +
			"name of another one"
	}
	return remotePlugin(InTreeReporterPlugins())(name)
}

func (v *validator) publish(p *field.Path, kinds []ReportedKind) {
	if v.tooMany(p, len(kinds), maxPluginEntries) {
		return
	}
	for i, kind := range kinds {
		oneOf(v, p.Index(i), kind, reportedKinds)
		if slices.Contains(kinds[:i], kind) {
			v.errs = append(v.errs, field.Duplicate(p.Index(i), kind))
		}
	}
}

// labels validates labels of an object, in the order of their keys.
func (v *validator) labels(p *field.Path, labels map[string]string) {
	if v.tooMany(p, len(labels), maxPluginEntries) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at := p.Key(key)
		domain, _, found := strings.Cut(key, "/")
		switch why := checkKey(key); {
		case why != "":
			v.invalid(at, key, why)
		case found && isReserved(domain):
			v.invalid(at, key, notReserved)
		}
		if value := labels[key]; len(validation.IsValidLabelValue(value)) > 0 {
			v.invalid(at, value, "must be empty or at most 63 letters, digits, -, _ and ., with a letter or digit at both "+
				"ends")
		}
	}
}

// notReserved is why a domain is rejected.
const notReserved = "must not be kubernetes.io or k8s.io, or below one of them: must be another domain, like " +
	"example.com"

func isReserved(domain string) bool {
	return slices.ContainsFunc(reservedDomains, func(reserved string) bool {
		return domain == reserved || strings.HasSuffix(domain, "."+reserved)
	})
}

func checkNodePrefix(domain string) string {
	switch {
	case len(validation.IsDNS1123Subdomain(domain)) > 0:
		return "must be a domain in lower case without a slash, like example.com"
	case isReserved(domain):
		return notReserved
	}
	return ""
}

func checkLeftOutField(entry string) string {
	path, minus := strings.CutPrefix(entry, "-")
	if minus && slices.Contains(ReportedFields(), path) {
		return ""
	}
	return fmt.Sprintf("must be a minus sign and one of %s", strings.Join(ReportedFields(), ", "))
}
