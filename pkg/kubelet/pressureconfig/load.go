package pressureconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
)

const (
	// DefaultPath is the default path of the file. The file is optional.
	DefaultPath = "/etc/plimsoll/pressure.yaml"
	// PathVariable is the environment variable with another path. It must be absolute, and the file must exist when the
	// agent starts.
	PathVariable = "PLIMSOLL_PRESSURE_CONFIG"
	// maxSize bounds what is read, in bytes.
	maxSize = 1 << 20
)

// Path returns the path of the file, and whether it was named explicitly and so has to exist at start. lookup is
// os.LookupEnv.
func Path(lookup func(string) (string, bool)) (file string, named bool, err error) {
	file, named = lookup(PathVariable)
	if !named || file == "" {
		return DefaultPath, false, nil
	}
	if !filepath.IsAbs(file) {
		return "", true, fmt.Errorf("environment variable %s: %q: must be an absolute path", PathVariable, file)
	}
	return file, true, nil
}

// Loaded is a configuration and its file. The zero value is that of an agent without such a file.
type Loaded struct {
	// File is the absolute path.
	File string
	// Kubelet has the settings of the agent that the file is checked against, now and after each change.
	Kubelet v1alpha1.Kubelet
	// Config is defaulted and valid. It must not be modified.
	Config *v1alpha1.NodePressureConfiguration
	// Hash is the SHA-256 of the file in hexadecimal digits, empty for the defaults without a file.
	Hash string
}

// Load reads, defaults and validates a file, for an agent with these settings. If there is no file it returns the
// defaults. An error has the file, and the path, the value and the allowed values of each invalid field.
func Load(file string, kubelet v1alpha1.Kubelet) (Loaded, error) {
	data, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Loaded{File: file, Kubelet: kubelet, Config: v1alpha1.Default()}, nil
	}
	if err != nil {
		return Loaded{}, err
	}
	config, err := parse(data, kubelet)
	if err != nil {
		return Loaded{}, fmt.Errorf("%s: %w", file, err)
	}
	return Loaded{File: file, Kubelet: kubelet, Config: config, Hash: hashOf(data)}, nil
}

// Configuration returns the configuration, which is the default one in the zero value. It must not be modified.
func (l *Loaded) Configuration() *v1alpha1.NodePressureConfiguration {
	if l.Config == nil {
		return v1alpha1.Default()
	}
	return l.Config
}

// LoadAtStart is Load, with an error if the file was named explicitly and does not exist. lookup is os.LookupEnv.
func LoadAtStart(lookup func(string) (string, bool), kubelet v1alpha1.Kubelet) (Loaded, error) {
	file, named, err := Path(lookup)
	if err != nil {
		return Loaded{}, err
	}
	if named {
		if _, err := os.Stat(file); err != nil {
			return Loaded{}, fmt.Errorf("environment variable %s: %w", PathVariable, err)
		}
	}
	return Load(file, kubelet)
}

func read(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSize {
		return nil, fmt.Errorf("%s: must be a regular file of at most %d bytes, not %d bytes of %s", file, maxSize,
			info.Size(), info.Mode())
	}
	return os.ReadFile(file)
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// parse decodes, defaults and validates the content of a file.
func parse(data []byte, kubelet v1alpha1.Kubelet) (*v1alpha1.NodePressureConfiguration, error) {
	c := &v1alpha1.NodePressureConfiguration{}
	if err := decode(data, c); err != nil {
		return nil, err
	}
	if err := checkKind(c); err != nil {
		return nil, err
	}
	v1alpha1.SetDefaults(c)
	if err := aggregate(append(v1alpha1.Validate(c), v1alpha1.ValidateFor(c, kubelet)...)); err != nil {
		return nil, err
	}
	return c, nil
}

func checkKind(c *v1alpha1.NodePressureConfiguration) error {
	var errs field.ErrorList
	if version := v1alpha1.SchemeGroupVersion.String(); c.APIVersion != version {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), c.APIVersion, []string{version}))
	}
	if c.Kind != v1alpha1.Kind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), c.Kind, []string{v1alpha1.Kind}))
	}
	return errs.ToAggregate()
}
