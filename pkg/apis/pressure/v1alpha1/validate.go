package v1alpha1

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns all errors of a configuration after defaulting, each with the path of the field, its value, and the
// allowed values.
func Validate(c *NodePressureConfiguration) field.ErrorList {
	v := &validator{}
	v.duration(field.NewPath("monitoringPeriod"), c.MonitoringPeriod, time.Second, 5*time.Minute)
	v.memory(field.NewPath("memory"), &c.Memory)
	v.eviction(field.NewPath("eviction"), &c.Eviction)
	v.duration(field.NewPath("admission", "waitForRoom"), c.Admission.WaitForRoom, 0, 10*time.Minute)
	v.dryRun(field.NewPath("dryRun"), c.DryRun)
	v.protection(field.NewPath("protection"), &c.Protection)
	v.directories(field.NewPath("plugins", "directories"), c.Plugins.Directories)
	v.evictionPlugins(field.NewPath("plugins", "eviction"), &c.Plugins.Eviction)
	v.ownDirectory(field.NewPath("plugins", "eviction", "softNoticeDirectory"),
		c.Plugins.Eviction.SoftNoticeDirectory, c.Plugins.Directories)
	v.reporterPlugins(field.NewPath("plugins", "reporter"), &c.Plugins.Reporter)
	v.decisionLog(field.NewPath("decisionLog"), &c.DecisionLog, c.Plugins.Directories)
	return v.errs
}

func (v *validator) decisionLog(p *field.Path, l *DecisionLogConfiguration, plugins []string) {
	v.quantity(p.Child("memory"), l.Memory, "1Mi", "256Mi")
	v.quantity(p.Child("maxSize"), l.MaxSize, "8Mi", "64Gi")
	v.duration(p.Child("maxAge"), l.MaxAge, time.Hour, 8760*time.Hour)
	v.ownDirectory(p.Child("directory"), l.Directory, plugins)
}

type validator struct{ errs field.ErrorList }

func (v *validator) memory(p *field.Path, m *MemoryConfiguration) {
	oneOf(v, p.Child("available"), m.Available, availableMemories)
	v.quantity(p.Child("worstGrowthPerSecond"), m.WorstGrowthPerSecond, "16Mi", "1Ti")
}

func (v *validator) eviction(p *field.Path, e *EvictionConfiguration) {
	v.duration(p.Child("killTime"), e.KillTime, 100*time.Millisecond, time.Minute)
	v.duration(p.Child("settling"), e.Settling, 0, time.Hour)
	v.duration(p.Child("patience"), e.Patience, time.Second, 10*time.Minute)
	oneOf(v, p.Child("localStorageLimits"), e.LocalStorageLimits, localStorageLimits)
	oneOf(v, p.Child("fence"), e.Fence, fencings)
	if len(v.errs) == 0 && e.Patience.Duration < e.KillTime.Duration {
		v.invalid(p.Child("patience"), e.Patience.Duration.String(),
			fmt.Sprintf("must be at least killTime, which is %s", e.KillTime.Duration))
	}
}

func (v *validator) dryRun(p *field.Path, list []ThresholdReference) {
	seen := map[ThresholdReference]bool{}
	for i, t := range list {
		at := p.Index(i)
		if t.Signal == "" {
			v.errs = append(v.errs, field.Required(at.Child("signal"), fmt.Sprintf("must be one of %v", Signals())))
			continue
		}
		oneOf(v, at.Child("signal"), t.Signal, Signals())
		if t.Kind != "" {
			oneOf(v, at.Child("kind"), t.Kind, thresholdKinds)
		}
		if seen[t] {
			v.errs = append(v.errs, field.Duplicate(at, fmt.Sprintf("%s %s", t.Signal, t.Kind)))
		}
		seen[t] = true
	}
}

// namespacePattern matches names of namespaces in which characters may be * and ?.
var namespacePattern = regexp.MustCompile(`^[a-z0-9*?]([-a-z0-9*?]{0,61}[a-z0-9*?])?$`)

func (v *validator) protection(p *field.Path, c *ProtectionConfiguration) {
	seen := map[string]bool{}
	for i, pattern := range c.Namespaces {
		at := p.Child("namespaces").Index(i)
		if _, err := path.Match(pattern, ""); err != nil || !namespacePattern.MatchString(pattern) {
			v.invalid(at, pattern, "must be the name of a namespace, in which * stands for any characters and ? for one")
		}
		if seen[pattern] {
			v.errs = append(v.errs, field.Duplicate(at, pattern))
		}
		seen[pattern] = true
	}
	inRange(v, p.Child("maxProtectedPods"), *c.MaxProtectedPods, 0, 1000)
	v.quantity(p.Child("maxProtectedMemory"), c.MaxProtectedMemory, "0", "1Pi")
	v.duration(p.Child("maxDelay"), c.MaxDelay, 0, 5*time.Minute)
}

func (v *validator) duration(p *field.Path, d *metav1.Duration, least, most time.Duration) {
	if d.Duration < least || d.Duration > most {
		v.invalid(p, d.Duration.String(), fmt.Sprintf("must be from %s to %s", least, most))
	}
}

func (v *validator) quantity(p *field.Path, q *resource.Quantity, least, most string) {
	if q.Cmp(resource.MustParse(least)) < 0 || q.Cmp(resource.MustParse(most)) > 0 {
		v.invalid(p, q.String(), fmt.Sprintf("must be from %s to %s", least, most))
	}
}

func inRange[T cmp.Ordered](v *validator, p *field.Path, n, least, most T) {
	if n < least || n > most {
		v.invalid(p, n, fmt.Sprintf("must be from %v to %v", least, most))
	}
}

func oneOf[T ~string](v *validator, p *field.Path, value T, allowed []T) {
	if !slices.Contains(allowed, value) {
		v.errs = append(v.errs, field.NotSupported(p, value, allowed))
	}
}

func (v *validator) invalid(p *field.Path, value any, detail string) {
	v.errs = append(v.errs, field.Invalid(p, value, detail))
}
