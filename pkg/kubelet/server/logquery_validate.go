package server

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"regexp/syntax"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxTailLines         = 100_000
	maxQueriedServices   = 4
	maxServiceNameLength = 256
)

// unsafeInUnitName matches every character that is not known to be harmless on the command line of journalctl: service
// names come from the network.
var unsafeInUnitName = regexp.MustCompile(`[^a-zA-Z0-9_.:@-]`)

var queryPath = field.NewPath("query")

// validate returns all errors of a query for files below dir.
func (q *logQuery) validate(dir string) field.ErrorList {
	errs := validateServices(q.services)
	errs = append(errs, q.validateTarget(dir)...)
	return append(errs, q.options.validate()...)
}

func validateServices(services []string) field.ErrorList {
	var errs field.ErrorList
	for _, name := range services {
		if err := validateServiceName(name); err != nil {
			errs = append(errs, field.Invalid(queryPath, name, err.Error()))
		}
	}
	if len(services) > maxQueriedServices {
		errs = append(errs, field.TooMany(queryPath, len(services), maxQueriedServices))
	}
	return errs
}

func validateServiceName(name string) error {
	if len(name) > maxServiceNameLength {
		return fmt.Errorf("length must be less than %d", maxServiceNameLength)
	}
	if unsafeInUnitName.MatchString(name) {
		return errors.New("input contains unsupported characters")
	}
	return nil
}

// validateTarget checks that the query is for services with options, or for one existing file without options.
func (q *logQuery) validateTarget(dir string) field.ErrorList {
	files, services := len(q.files), len(q.services)
	invalid := func(value any, detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(queryPath, value, detail)}
	}
	switch {
	case files == 0 && services == 0:
		return field.ErrorList{field.Required(queryPath, "cannot be empty with options")}
	case files > 0 && services > 0:
		return invalid(fmt.Sprintf("%v, %v", q.files, q.services), "cannot specify a file and service")
	case files > 1:
		return invalid(q.files, "cannot specify more than one file")
	case files == 1 && q.options != (logOptions{}):
		return invalid(q.files, "cannot specify file with options")
	case files == 1:
		if err := checkExistsBelow(dir, q.files[0]); err != nil {
			return invalid(q.files, err.Error())
		}
	}
	return nil
}

// checkExistsBelow checks that a file exists below dir; symbolic links may not lead outside. A leading slash stands for
// dir: the documented form of a query for a file is query=/<file>, which stock v1.36 rejects.
func checkExistsBelow(dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	_, err = root.Stat(strings.TrimLeft(name, "/"))
	return errors.Join(err, root.Close())
}

func (o logOptions) validate() field.ErrorList {
	var errs field.ErrorList
	invalid := func(name string, value any, detail string) {
		errs = append(errs, field.Invalid(field.NewPath(name), value, detail))
	}
	if o.since != nil && o.until != nil && o.since.After(*o.until) {
		invalid("untilTime", o.until, "must be after `sinceTime`")
	}
	if o.boot != nil && *o.boot > 0 {
		invalid("boot", *o.boot, "must be less than 1")
	}
	if o.tail != nil {
		if problems := utilvalidation.IsInRange(*o.tail, 0, maxTailLines); len(problems) > 0 {
			invalid("tailLines", *o.tail, problems[0])
		}
	}
	if _, err := syntax.Parse(o.pattern, syntax.Perl); err != nil {
		invalid("pattern", o.pattern, err.Error())
	}
	return errs
}
